// Package remeasure holds the times of a served plan against those that the plan states, and puts them into the
// profile, so that the next plan is made from what the server measured.
//
// Vocabulary:
//
//   - Pace: how long the runs of a model took on a kind of device, as a multiple of the planned times.
//   - Enough: as many runs as a pace needs to count, see minRuns.
package remeasure
