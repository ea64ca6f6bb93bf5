// Package kind is the contract between the planner and its methods. A method plans one kind
// of plan. It is one value of type Method, defined in the package of its kind (planner/pool
// and so on). Package planner lists the methods in one table and drives them. Nothing else
// depends on the kind of a plan.
//
// The words of this package:
//
//   - Documents: profile, cluster and workload, from which a plan is made.
//   - Problem: the documents with the values of the options.
//   - Outcome: what a method found; the driver makes the plan document of it.
//   - Relaxation: by how much less is asked, or more given, than in a problem.
//   - Finding: a constraint that a plan breaks today, or something that changed.
//   - Figure: a number that the gate compares, promised before and found today.
//   - Margin: the part of an SLO that plans keep back.
//   - Drift: the share by which runs may take longer than the means of the profile.
//
// Order of reading:
//
//	method.go      Method: what a kind can do
//	settings.go    the settings of a certification
//	problem.go     Problem, SolveRun and Outcome: input and output of a solve
//	objective.go   sense, bound and prices of an objective
//	observed.go    what runs and was not planned: the input of Adopt
//	plan.go        the plan document of an outcome
//	times.go       by which times its rates are computed, and which were not measured
//	infeasible.go  InfeasibleError and the nearest feasible problem
//	relaxation.go  relaxations of a problem, to search for the nearest feasible one; the requests that a served plan got
//	reserves.go    the margin of an SLO, the least SLO that leaves a time, and the drift of a profile
//	check.go       what the kinds' parts of a check share: findings, figures, today's documents
//	text.go        figures, and which cuts the profile does not know, as people read them
//
// The package imports the documents and the names of the solver's outcomes, and nothing else
// of this module.
package kind
