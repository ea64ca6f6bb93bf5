package losses

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/planner/pool/relaxation"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/testkit/pooldraw"
	"inferplan/testkit/poolrelaxed"
)

// relaxed is a problem with its relaxation and the best plan that rounding finds.
type relaxed struct {
	choice *relaxation.WaitChoice
	best   *incumbent.Incumbent
}

// relax returns a problem with its relaxation.
func relax(p *problem.Problem) (*relaxed, error) {
	choice, best, err := poolrelaxed.Relax(p)
	return &relaxed{choice, best}, err
}

// unrecorded drops the records of phases.
func unrecorded(string, int, milp.Stats) {}

// The bounds by sums of losses hold against the
// integer program over every template, and where the sums keep stage positions
// apart (or where that is no matter) they come to its value.
func TestLossesAgainstProgram(t *testing.T) {
	compared, exact, tighter := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 3, Count: 5, Shares: 3, Blocks: 3, Batches: 2, Partitions: 2, Memory: true})
		ctx := context.Background()
		x, err := relax(p)
		if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
			t.Logf("%v", inf)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(x.choice.Catalogue.Templates) > 150 || x.best.Plan == nil {
			return
		}
		q := programs.New(x.choice.Catalogue, x.choice.AllowedTemplates, x.choice.Relaxation.Bound, 0)
		sol, err := highs.Solver{}.Solve(ctx, q.Model, milp.Options{Gap: 1e-7, MaxNodes: 3000})
		if err != nil || sol.Status != milp.Optimal && sol.Status != milp.Gap {
			return
		}
		want := sol.Value
		compared++
		holds := func(name string, x *relaxed) {
			if x.best.ChoiceBound < want*(1-1e-6) {
				t.Errorf("%s: bound %v, the program has a plan of %v", name, x.best.ChoiceBound, want)
			}
			if x.best.Score() > sol.Bound*(1+1e-6) {
				t.Errorf("%s: value %v, the program allows %v", name, x.best.Score(), sol.Bound)
			}
		}
		done := boundByLossSums(x.choice, x.best, &problem.Options{Effort: 1}, 1, false, unrecorded)
		holds("losses", x)
		if p.Rounding == problem.Slot {
			done = boundByLossSums(x.choice, x.best, &problem.Options{Effort: 1}, 1, true, unrecorded)
			holds("losses by position", x)
		}
		if done {
			exact++
			if x.best.ChoiceBound > max(want, x.best.Score())*(1+1e-5) {
				t.Errorf("the best sums are %v, the program comes to %v", x.best.ChoiceBound, want)
			}
		}
		if x.best.ChoiceBound < x.choice.Relaxation.Bound*(1-1e-6) {
			tighter++
		}
	})
	t.Logf("%d compared, %d solved by sums alone, %d times below the relaxation", compared, exact, tighter)
	if compared == 0 || exact == 0 || tighter == 0 {
		t.Error("no case showed what was to be shown")
	}
}

// The sums know what the program must enumerate: one model whose stages come in
// twos and threes on devices that only whole numbers of both fill. In the other
// cases stage positions may share none of these devices, and what a sum leaves has
// to tell which of the sums by position are worth a look.
func TestLossesProve(t *testing.T) {
	for _, z := range []pooldraw.Synthetic{{Seed: 3, Shares: 4}, {Seed: 9, Shares: 3}} {
		z.Models, z.Classes, z.Kinds, z.GPUs, z.Layers, z.Partitions, z.Batches = 1, 1, 2, 100, 8, 3, 3
		t.Run(fmt.Sprintf("seed %d", z.Seed), func(t *testing.T) { lossesProve(t, z.Problem()) })
	}
}

func lossesProve(t *testing.T, p *problem.Problem) {
	x, err := relax(p)
	if err != nil {
		t.Fatal(err)
	}
	before := x.best.Gap()
	boundByLossSums(x.choice, x.best, &problem.Options{Effort: 1}, 1, false, unrecorded)
	boundByLossSums(x.choice, x.best, &problem.Options{Effort: 1}, LongFactor, true, unrecorded)
	if !(before > 1e-4) || x.best.Gap() > 1e-6 {
		t.Errorf("gap %v, then %v", before, x.best.Gap())
	}
}

// One model on devices that stage positions may not share: whatever the work that
// is allowed, no bound is below the program, and enough work comes to its value.
func TestLeftoversAgainstProgram(t *testing.T) {
	compared, exact, cut := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		z := pooldraw.Synthetic{Models: 1, Classes: 1, Kinds: 2, Partitions: 3, Batches: 2}
		z.Seed, z.GPUs = rapid.Uint64Range(0, 1000).Draw(t, "seed"), rapid.IntRange(4, 14).Draw(t, "gpus")
		z.Layers, z.Shares = rapid.IntRange(3, 5).Draw(t, "layers"), rapid.IntRange(2, 4).Draw(t, "shares")
		p := z.Problem()
		work := int64(rapid.SampledFrom([]int{500, 5000, 50_000, lossWorkSteps}).Draw(t, "work"))
		x, err := relax(p)
		if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
			t.Logf("%v", inf)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(x.choice.Catalogue.Templates) > 150 || x.best.Plan == nil {
			return
		}
		sol, err := highs.Solver{}.Solve(context.Background(), programs.New(x.choice.Catalogue, x.choice.AllowedTemplates, x.choice.Relaxation.Bound, 0).Model, milp.Options{Gap: 1e-7, MaxNodes: 3000})
		if err != nil || sol.Status != milp.Optimal && sol.Status != milp.Gap {
			return
		}
		compared++
		knapsack := newLossKnapsack(x.choice, x.best, incumbent.ProvenGap, work)
		knapsack.bySlot = true
		if knapsack.isUseful() && knapsack.raiseBudget() {
			exact++
			if x.best.ChoiceBound > max(sol.Value, x.best.Score())*(1+1e-5) {
				t.Errorf("the best sums are %v, the program comes to %v", x.best.ChoiceBound, sol.Value)
			}
		} else if knapsack.workSteps > 0 {
			cut++
		}
		// The solver's plan may break constraints by its tolerance, and come to 1e-6 more.
		if x.best.ChoiceBound < sol.Value*(1-1e-5) {
			t.Errorf("bound %v, the program has a plan of %v", x.best.ChoiceBound, sol.Value)
		}
		if x.best.Score() > sol.Bound*(1+1e-6) {
			t.Errorf("value %v, the program allows %v", x.best.Score(), sol.Bound)
		}
	})
	t.Logf("%d compared, %d solved by sums alone, %d cut short", compared, exact, cut)
	if compared == 0 || exact == 0 || cut == 0 {
		t.Error("no case showed what was to be shown")
	}
}

// Labels come by what they lose, also where a better sum took the place of one that
// was waiting.
func TestLabelsByLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &labelSearch{knapsack: &lossKnapsack{}, labelByUse: map[deviceUse]int32{}}
		last := 0.0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "sums") {
				loss := last + rapid.Float64Range(0, 10).Draw(t, "loss")
				l.addLabel(&sumLabel{devices: deviceUse{rapid.Uint64Range(0, 12).Draw(t, "use")}, loss: loss}, loss)
			}
			w, ok := l.nextLabel()
			if !ok {
				continue
			}
			last = l.labels[w.label].loss
			for j := range l.labels {
				if !l.isFinal[j] && l.labels[j].loss < last {
					t.Fatalf("label %d of %v came before label %d of %v", w.label, last, j, l.labels[j].loss)
				}
			}
			l.isFinal[w.label] = true
		}
	})
}
