package pool

import (
	"context"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// The bounds by sums of losses and by whole devices per model hold against the
// integer program over every template, and where the sums keep stage positions
// apart (or where that is no matter) they come to its value.
func TestLossesAgainstProgram(t *testing.T) {
	compared, exact, tighter := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, size{models: 3, pools: 3, count: 5, shares: 3, blocks: 3, batches: 2, partitions: 2, memory: true})
		ctx := context.Background()
		fresh := func() *search {
			x, err := newSearch(ctx, p, highs.Solver{}, Options{}, throughput{})
			if inf, ok := errors.AsType[*Infeasible](err); ok {
				t.Logf("%v", inf)
				return nil
			}
			if err != nil {
				t.Fatal(err)
			}
			(&phases{x}).shrink()
			return x
		}
		x := fresh()
		if x == nil || len(x.templates) > 150 || x.best == nil {
			return
		}
		q := x.program(x.allowed, x.lp.bound, 0)
		sol, err := x.s.Solve(ctx, q.m, milp.Options{Gap: 1e-7, MaxNodes: 3000})
		if err != nil || sol.Status != milp.Optimal && sol.Status != milp.Gap {
			return
		}
		want := sol.Value
		compared++
		holds := func(name string, x *search) {
			if x.inner < want*(1-1e-6) {
				t.Errorf("%s: bound %v, the program has a plan of %v", name, x.inner, want)
			}
			if x.score() > sol.Bound*(1+1e-6) {
				t.Errorf("%s: value %v, the program allows %v", name, x.score(), sol.Bound)
			}
		}
		if err := (&phases{x}).wholePerModel(ctx); err != nil {
			t.Fatal(err)
		}
		holds("whole devices", x)
		x = fresh()
		done := (&phases{x}).sums(lossWork, false)
		holds("losses", x)
		if p.Rounding == Slot {
			done = (&phases{x}).sums(lossWork, true)
			holds("losses by position", x)
		}
		if done {
			exact++
			if x.inner > max(want, x.score())*(1+1e-5) {
				t.Errorf("the best sums are %v, the program comes to %v", x.inner, want)
			}
		}
		if x.inner < x.lp.bound*(1-1e-6) {
			tighter++
		}
	})
	t.Logf("%d compared, %d solved by sums alone, %d times below the relaxation", compared, exact, tighter)
	if compared == 0 || exact == 0 || tighter == 0 {
		t.Error("no case showed what was to be shown")
	}
}

// The sums know what the program must enumerate: one model whose stages come in
// twos and threes on devices that only whole numbers of both fill.
func TestLossesProve(t *testing.T) {
	p := synthetic{seed: 3, models: 1, classes: 1, kinds: 2, gpus: 100, layers: 8, partitions: 3, shares: 4, batches: 3}.problem()
	x, err := newSearch(context.Background(), p, highs.Solver{}, Options{}, throughput{})
	if err != nil {
		t.Fatal(err)
	}
	(&phases{x}).shrink()
	before := x.gap()
	(&phases{x}).sums(lossWork, false)
	(&phases{x}).sums(lossMore*lossWork, true)
	if !(before > 1e-4) || x.gap() > 1e-6 {
		t.Errorf("gap %v, then %v", before, x.gap())
	}
	if out, err := Solve(context.Background(), p, highs.Solver{}, Options{Gap: 1e-3}); err != nil || math.Abs(out.Value/x.best.value-1) > 1e-3 {
		t.Errorf("%v, %v against %v", err, out, x.best.value)
	}
}
