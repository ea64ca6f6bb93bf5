// Package verify checks whether a plan of applications holds by the documents of today. It computes
// everything from first principles and shares no code with the planner, so that a mistake there shows here.
//
// Vocabulary:
//
//   - Today: the documents as they are now, against which a plan is checked.
//   - Finding: a statement of the plan that does not hold today, with its constraint and the place in the
//     plan.
//   - Device group: devices that run the same models (workflows only).
//   - Shared run: the longest run of any model on the devices of a model that takes turns.
//
// The order in which to read the files:
//
//	check.go        Check, and the checks of applications and of the objective
//	hold.go         times and rates of models today, alone and along paths
//	devices.go      where replicas stand, and what they take of devices and memory
//	scaling.go      the table by which replicas come and go
//	workflows.go    the checks of workflows: segments, groups of devices, what devices hold
//	generations.go  language models by the iterations of today's profile
//	figures.go      Figures: what was promised against what holds today; WorkloadOf
package verify
