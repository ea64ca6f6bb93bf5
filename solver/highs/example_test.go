//go:build cgo

package highs_test

import (
	"context"
	"fmt"

	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// A solution comes with a bound.
func ExampleSolver() {
	m := milp.New("replicas")
	fast := m.AddInt("fast", 0, 10, 2.0) // USD per hour
	slow := m.AddInt("slow", 0, 10, 0.7)
	m.AddRow("rate", 100, milp.Inf, milp.Term{Var: fast, Coef: 40}, milp.Term{Var: slow, Coef: 15})

	ctx := context.Background()
	s, err := highs.Solver{}.Solve(ctx, m, milp.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v: %d fast, %d slow, %.1f USD per hour, bound %.1f\n", s.Status, s.Int(fast), s.Int(slow), s.Value, s.Bound)
	// Output:
	// optimal: 1 fast, 4 slow, 4.8 USD per hour, bound 4.8
}
