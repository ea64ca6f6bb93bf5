// Package verify checks whether a plan of queues holds by the documents of today. It computes everything
// from first principles and shares no code with the planner, so that a mistake there shows here.
//
// Vocabulary:
//
//   - Today: the documents as they are now, against which a plan is checked.
//   - Finding: a statement of the plan that does not hold today, with its constraint and the place in the
//     plan.
//   - Idle figure: the figure by which a class is judged (whole answer, TTFT, TPOT), on a server without
//     other requests.
//
// The order in which to read the files:
//
//	check.go    Check, and the checks of models, devices, classes and the objective
//	work.go     the least time that an instance needs for a request, and for all requests
//	figures.go  Figures: the promised plan and today's, both simulated; WorkloadOf
package verify
