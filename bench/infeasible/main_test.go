package main

import (
	"math/rand/v2"
	"testing"
)

// A small sample of what the command judges: problems of pools, by which most are.
func TestInfeasibility(t *testing.T) {
	near, infeasible := 0, 0
	for seed := uint64(1); infeasible < 12; seed++ {
		v := judge(t.Context(), pool(rand.New(rand.NewPCG(seed, 17))))
		if v.Feasible {
			continue
		}
		infeasible++
		near += v.Near
		for _, w := range v.Wrong {
			t.Errorf("seed %d (%s): %s", seed, v.Name, w)
		}
	}
	if near == 0 {
		t.Error("nothing was called nearest: the test is of no use")
	}
}
