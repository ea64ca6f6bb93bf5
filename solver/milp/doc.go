// Package milp describes linear and mixed-integer programs, and the contract of solving one.
//
// It is pure Go and knows nothing of a particular solver: a planner builds a [Model], hands it to a [Solver]
// (package solver/highs has one) with [Options], and reads the [Solution]. The pieces:
//
//	model.go       Model: an objective, variables and constraints
//	variables.go   variables with bounds and objective coefficients: AddVar, AddInt, AddBool …
//	constraints.go rows with limits and coefficients: AddRow, AddLE, AddTerm …
//	validate.go    errors that name the row or variable: NaN, crossed bounds, unknown variables
//	scale.go       other units for rows and variables with coefficients that solvers do not accept
//	matrix.go      the constraint matrix in compressed columns, as solvers read it
//	tables.go      a model as lists, in a form for another process
//	faults.go      a solver that lets a search go on if another solver fails
//	options.go     Options: work limits, gap, seed, starts, callbacks
//	solution.go    Solution, Status, StoppedBy, statistics
//	check.go       feasibility of a point, by this package's arithmetic; rounding of integer variables
//	finish.go      the last steps of every solver: round, solve again for continuous variables, check, recompute the value
//
// Row: a constraint with a lower and an upper limit. Incumbent: the best solution so far. Bound: a value that no
// solution beats. Gap: the distance between both.
//
// # Signs
//
// A row's dual is the rate at which the objective, in the model's own sense, changes as the row's binding limit
// grows: d objective / d limit. So a binding capacity row has a dual >= 0 in a maximisation (a price: the gain
// of one more unit) and <= 0 in a minimisation. A reduced cost is the same rate for a variable's binding bound.
// Only linear programs have them.
//
// # Determinism
//
// A solve that ends because it is proved, or by gap or by work (nodes, iterations), returns the same bytes
// every time. One stopped by the clock or by its context does not.
package milp
