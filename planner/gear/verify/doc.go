// Package verify tells whether a plan of gears holds by the documents of today,
// gear by gear, from first principles. It shares no code with the planner, so
// that a mistake there shows here.
//
//	check.go      Check: findings, each with its constraint and field
//	devices.go    where models stand and what they take
//	family.go     models, target and ranges against the workload
//	records.go    what samples say of a cascade
//	bounds.go     what no cascades exceed
//	envelope.go   those cascades, enumerated
//	singles.go    the best of them for every range, on any placement
//	objective.go  the plan's value
//	figures.go    Figures: what was promised against what holds; WorkloadOf
//	tails.go      tail latencies, simulated
//	rates.go      the plan on measured rates, where only they say that it holds
package verify
