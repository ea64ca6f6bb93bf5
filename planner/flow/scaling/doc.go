// Package scaling says how many replicas of each module of an application serve at which rate, and how fast replicas
// come and go with the arrivals.
//
// Vocabulary:
//
//   - Worker: a replica of a module.
//   - Table: by rising rate at the entry of an application, the workers of each module that serve from there on.
//   - Capacity: the rate at the entry that the workers of all modules carry.
//   - Pace: the times over which a policy averages queueing and rates, for which a rate counts, and by which it is
//     extrapolated.
//
// The order in which to read the files:
//
//	table.go  the table, by the cost of workers and of requests that are not carried; the pace, by how much the arrivals of a trace vary
package scaling
