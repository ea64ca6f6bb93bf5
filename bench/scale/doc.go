// Command scale measures how the planner of pools scales: the gap between its
// plan and its bound over the CPU time that it takes. The models, kinds and SLO
// classes are made from recorded profiles, with a seeded spread where there are
// not enough of them. Everything is planned through the planner's documents, as
// `plan solve` does it.
//
// The files:
//
//	main.go       the parts and their figures
//	instances.go  documents made from the recorded measurements
//
//	make bench NAME=scale
package main
