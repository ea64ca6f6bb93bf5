package milp_test

import (
	"fmt"

	"inferplan/solver/milp"
)

// How many replicas of each device kind carry 100 requests per second at the least
// price. A fast device carries 40, a slow one 15.
func Example() {
	m := milp.New("replicas")
	fast := m.AddInt("fast", 0, 10, 2.0) // USD per hour
	slow := m.AddInt("slow", 0, 10, 0.7)
	m.AddRow("rate", 100, milp.Inf, milp.Term{Var: fast, Coef: 40}, milp.Term{Var: slow, Coef: 15})
	fmt.Println(m)

	// Check holds a point against the model by exact rows, whoever found it.
	for _, x := range [][]float64{{2, 1}, {2, 2}} {
		fmt.Printf("%v costs %.1f, feasible: %v\n", x, m.Value(x), m.Check(x).OK())
	}
	// Output:
	// replicas: 2 variables (2 integer), 1 rows, 2 coefficients, minimize
	// [2 1] costs 4.7, feasible: false
	// [2 2] costs 5.4, feasible: true
}
