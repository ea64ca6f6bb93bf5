// Package check tells whether a plan is still true. Recompute validates it
// against today's profile, cluster and workload from first principles: it
// shares no code with the planner, so a mistake there shows here. Gate also
// plans again with the plan's own options and compares what was promised with
// what holds today, within tolerances, for a CI job.
//
//	recompute.go  Recompute: findings, each with its constraint and field
//	world.go      what the stages of a plan cost and carry today
//	devices.go    placements, shares, memory
//	metrics.go    the figures that are compared, each with a tolerance
//	blocks.go     which blocks became slower
//	gear.go       the same for gear plans, gear by gear; in gearfamily.go against
//	              the workload, in geardevices.go where models stand and what
//	              they take, in gearrecords.go what samples say
//	gearbounds.go what no cascades exceed, from those of gearenvelope.go;
//	              gearobjective.go the plan's value
//	tails.go      figures of gear plans, with their tails simulated
//	gate.go       Gate and its result
package check
