//go:build cgo

package highs_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"inferplan/solver/milp"
)

// exactText gives all of a solution but its CPU time, to the last bit.
func exactText(s *milp.Solution) string {
	c := *s
	c.Stats.CPU = 0
	basis := fmt.Sprint(c.Basis)
	if c.Basis != nil {
		basis = fmt.Sprint(*c.Basis)
	}
	c.Basis = nil
	return fmt.Sprintf("%x %v %+v", append(append(append([]float64{s.Value, s.Bound, s.Gap}, s.X...), s.RowDuals...), s.ReducedCosts...), basis, c.Stats)
}

func TestSolvesAreDeterministic(t *testing.T) {
	run := func() string {
		var b strings.Builder
		b.WriteString(exactText(solve(t, marketSplit(4, 30), milp.Options{MaxNodes: 100, Seed: 7})))
		b.WriteString(exactText(solve(t, marketSplit(4, 30), milp.Options{MaxIterations: 3000})))
		b.WriteString(exactText(solve(t, bigKnapsack(), milp.Options{Gap: 0.002})))
		b.WriteString(exactText(solve(t, transportModel(40), milp.Options{})))
		return b.String()
	}
	first := run()
	for _, procs := range []int{1, 4} {
		old := runtime.GOMAXPROCS(procs)
		again := run()
		runtime.GOMAXPROCS(old)
		if again != first {
			t.Errorf("at GOMAXPROCS %d the answers differ:\n%s\n%s", procs, first, again)
		}
	}
}

func TestConcurrentSolves(t *testing.T) {
	models := []*milp.Model{factoryModel(), knapsackModel(), transportModel(15), bigKnapsack()}
	opts := milp.Options{Gap: 0.01}
	want := make([]string, len(models))
	for i, m := range models {
		want[i] = exactText(solve(t, m, opts))
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range 6 {
				i := (g + k) % len(models)
				s, err := solver.Solve(ctx, models[i], opts)
				if err != nil {
					t.Error(err)
				} else if got := exactText(s); got != want[i] {
					t.Errorf("%s: differs from the solve alone", models[i].Name)
				}
			}
		}()
	}
	wg.Wait()
}

// residentBytes is the resident memory of this process in bytes.
func residentBytes(t *testing.T) int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("needs /proc/self/statm to read resident memory: %v", err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

func TestNoLeak(t *testing.T) {
	// What leaks is native memory, so one goroutine on one thread is enough, and Go's own heap is kept small.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	infeasible := knapsackModel()
	infeasible.AddGE("too much", 9, milp.Term{Var: 0, Coef: 1})
	lp, mip := transportModel(8), knapsackModel()
	round := func(n int) {
		for range n {
			solve(t, lp, milp.Options{})
			solve(t, mip, milp.Options{Start: []float64{1, 1, 0, 0}, Incumbent: func(milp.Incumbent) {}})
			solve(t, infeasible, milp.Options{})
			solve(t, factoryModel(), milp.Options{MaxIterations: 1, NoPresolve: true})
		}
		runtime.GC()
	}
	round(100)
	before := residentBytes(t)
	round(500)
	// A leak of 2 KB per solve would show; a HiGHS object is hundreds of KB.
	if grown := residentBytes(t) - before; grown > 4<<20 {
		t.Errorf("resident memory grew by %d KB over 2,000 solves", grown>>10)
	}
}
