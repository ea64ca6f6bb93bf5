// Package reference reads the plans that the PPipe artifact's solver made, as
// the reference data of PPipe (USENIX ATC 2025) holds them: a JSON list, one
// entry per case and algorithm. It only parses; bench/recorded turns an entry
// into a plan of ours, with a profile, and recomputes its figures.
package reference
