// Package verify tells whether a plan of applications holds by the documents of
// today, from first principles. It shares no code with the planner, so that a
// mistake there shows here.
//
//	check.go    Check: findings, each with its constraint and field
//	devices.go  where modules stand and what they take
//	scaling.go  the table by which replicas come and go
//	hold.go     what models take and carry today, along paths and together
//	generations.go  language models by today's iterations
//	figures.go  Figures: what was promised against what holds; WorkloadOf
package verify
