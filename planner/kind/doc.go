// Package kind is the contract between the planner and its methods. A method
// plans one kind of plan. It is one value of type Method, made in the room of
// its kind (planner/pool and so on). Package planner lists them in one table
// and drives them. Nothing else asks of which kind a plan is.
//
//	method.go     Method: what a kind can do
//	asked.go      what a certification must show
//	problem.go    Problem, Run and Outcome: what a solve is given and gives back
//	plan.go       the plan document of an outcome
//	times.go      by which times its rates are computed, and which were not measured
//	infeasible.go InfeasibleError and the nearest thing that is feasible
//	looser.go     what a problem is made to ask less of, in search of that
//	margin.go     the margin of an SLO, and the least SLO that leaves a time
//	check.go      what the kinds' halves of a check share: findings, figures, today's documents
//	cuts.go       which cuts the profile does not know, in one line
//	text.go       figures as people read them
//
// The package is a leaf: it imports the documents and the names of the solver's
// outcomes, nothing else of ours.
package kind
