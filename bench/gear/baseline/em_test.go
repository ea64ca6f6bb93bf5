package baseline

import (
	"context"
	"math/bits"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/bench/gear/published"
	"inferplan/planner/gear/search"
	"inferplan/solver/highs"
)

// Algorithm 1 always ends. What it ends with fits in memory, keeps every device below
// full load, was seen to hold, and is within the bound of the exact planner.
func TestAlternationEnds(t *testing.T) {
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		if held > 12 { // simulations take time
			return
		}
		f := burst()
		f.Grid = rapid.IntRange(2, 5).Draw(t, "grid")
		f.Memory = rapid.Int64Range(450, 1500).Draw(t, "memory")
		p, err := Problem(f, rapid.IntRange(1, 3).Draw(t, "devices"), 3, f.SLO)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := Alternation(ctx, p, rapid.Uint64Range(1, 9).Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		if out == nil {
			return
		}
		held++
		exact, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: 1})
		if err != nil || out.Accuracy > exact.Bound+1e-9 {
			t.Fatalf("accuracy %v, the exact planner says %v, %v", out.Accuracy, exact, err)
		}
		placed := uint32(0)
		for _, on := range out.Configs {
			if total := MemoryOf(p, on.ModelSet); total > p.Kinds[0].Memory {
				t.Fatalf("models %b take %d of %d bytes", on.ModelSet, total, p.Kinds[0].Memory)
			}
			if on.Count > 0 {
				placed |= on.ModelSet
			}
		}
		for r := range out.Gears {
			g, used := &out.Gears[r], uint32(0)
			if g.BusiestLoad > 1 || !g.Trial.Passed || g.Trial.Latency > p.SLO {
				t.Fatalf("range %d: load %v, trial %+v", r, g.BusiestLoad, g.Trial)
			}
			for _, m := range g.Cascade.Models {
				used |= 1 << m
			}
			if used&^placed != 0 {
				t.Fatalf("range %d asks models %b, %d of them nowhere", r, used, bits.OnesCount32(used&^placed))
			}
		}
	})
	if held < 10 {
		t.Errorf("only %d instances had a plan", held)
	}
}

// Beside the exact planner on a published family, with memory to spare.
func TestAlternationOnPublishedFamily(t *testing.T) {
	f := published.Llama4()
	f.Grid = 5
	for range 10 {
		f.Rates = append(f.Rates, 30, 60)
	}
	p := problem(t, f, 4)
	exact, err := search.Solve(context.Background(), p, highs.Solver{}, search.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	out, err := Alternation(context.Background(), p, 1)
	if err != nil || out == nil {
		t.Fatalf("no plan: %v", err)
	}
	t.Logf("accuracy %.4f, exact %.4f, %d simulations", out.Accuracy, exact.Accuracy, out.RunCount)
	if out.Accuracy > exact.Bound+1e-9 || out.Accuracy < exact.Accuracy-.03 {
		t.Errorf("accuracy %.4f, exact %.4f of at most %.4f", out.Accuracy, exact.Accuracy, exact.Bound)
	}
}
