// Package verify checks whether a plan of gears holds by today's documents, gear by gear, from
// first principles. It shares no code with the planner, so that a mistake there shows here.
//
// Vocabulary (planner/gear has the words of cascades):
//
//	Finding:   a figure or structure of the plan that does not hold, or has changed.
//	Today:     profile, cluster and workload of now, which may differ from those planned with.
//	Figure:    a number whose promised and present values are compared, such as a rate.
//	Envelope:  the most accuracy of a mixture of cascades, by its cost.
//
// Order of reading:
//
//	check.go      Check: all findings, each with its constraint and field
//	family.go     models, SLO and ranges against the workload
//	devices.go    the devices of each stage, their memory, and the latencies
//	records.go    answers to samples, and cascades replayed on them
//	bounds.go     bounds of ranges and of the plan
//	envelope.go   all cascades, and the envelope of their mixtures
//	singles.go    the best single cascades for every range, on any placement
//	objective.go  the plan's value
//	rates.go      the plan simulated on measured rates, if only these show that it holds
//	figures.go    Figures and WorkloadOf
//	tails.go      simulated tail latencies
package verify
