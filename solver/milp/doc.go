// Package milp describes linear and mixed-integer programs, and what it means to solve one.
//
// It is pure Go and knows nothing of a particular solver: a planner builds a [Model], hands it to a [Solver]
// (package solver/highs has one) with [Options], and reads the [Solution]. The pieces:
//
//	model.go       Model: an objective, variables and constraints
//	variables.go   variables with bounds and objective coefficients: AddVar, AddInt, AddBool …
//	constraints.go rows with limits and coefficients: AddRow, AddLE, AddTerm …
//	validate.go    errors that name the row or variable: NaN, crossed bounds, unknown variables
//	scale.go       other units for rows and variables with coefficients that solvers would not take
//	matrix.go      the constraint matrix in compressed columns, as solvers take it
//	tables.go      a model as lists, as another process takes it
//	faults.go      a solver whose callers go on where another one fails
//	options.go     Options: work limits, gap, seed, starts, callbacks
//	solution.go    Solution, Status, StoppedBy, statistics
//	check.go       feasibility of a point, by our own arithmetic; rounding of integer variables
//	finish.go      the last steps every solver shares: round, re-solve what is continuous, check, recompute the value
//	elastic.go     the smallest violations that make an infeasible model feasible
//	conflict.go    limits of rows that exclude each other, minimal (elastic filter, then deletion)
//
// # Signs
//
// A row's dual is the rate at which the objective, in the model's own sense, changes as the row's binding limit
// grows: d objective / d limit. So a binding capacity row has a dual >= 0 in a maximisation (a price: what one
// more unit is worth) and <= 0 in a minimisation. A reduced cost is the same rate for a variable's binding bound.
// Only linear programs have them.
//
// # Determinism
//
// A solve that ends because it is proved, or by gap or by work (nodes, iterations), returns the same bytes
// every time. One stopped by the clock or by its context does not.
package milp
