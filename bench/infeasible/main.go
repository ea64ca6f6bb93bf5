package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
)

// bench holds flags.
type bench struct {
	first       uint64 // seed
	n, refusals int
}

func main() {
	b := &bench{}
	instrument.Main(&instrument.Instrument{
		Name: "infeasible", Keeps: true,
		Parts: []instrument.Part{
			{Name: "verdicts", Title: "Problems without a plan", Columns: []string{"instances", "of", "bad input, named", "called nearest", "wrong", "slowest answer"}, Measure: b.verdicts},
			{Name: "refusals", Title: "What a no takes", OnRequest: true, Measure: b.measureRefusals,
				Columns: []string{"seed", "what is out of reach", "nearest", "no, s of CPU", "solving what is nearest, s of CPU", "times", "cut short"}},
		},
		Flags: func(f *flag.FlagSet) {
			f.Uint64Var(&b.first, "first", 1, "seed of the first problem")
			f.IntVar(&b.n, "n", 1000, "part verdicts: problems without a plan")
			f.IntVar(&b.refusals, "refusals", 20, "part refusals: problems without a plan")
		},
	})
}

// kinds draw problems, each so often.
var kinds = []struct {
	draw    func(*rand.Rand) *instance
	percent int
}{{pool, 80}, {flow, 15}, {gear, 3}, {queue, 2}}

// drawn is the instance of a seed.
func drawn(seed uint64) *instance {
	r := rand.New(rand.NewPCG(seed, 17))
	at := r.IntN(100)
	for _, k := range kinds {
		if at -= k.percent; at < 0 {
			return k.draw(r)
		}
	}
	return nil
}

// judged judges the instances of n seeds.
func judged(r *instrument.Run, first uint64, n int) ([]*verdict, error) {
	list := make([]*verdict, n)
	err := r.ForEach(n, func(ctx context.Context, i int) (err error) {
		seed := first + uint64(i)
		list[i], err = instrument.Measured(r, fmt.Sprintf("verdict %d", seed), func() (*verdict, error) {
			return judge(ctx, drawn(seed)), ctx.Err()
		})
		if err != nil {
			return err
		}
		for _, wrong := range list[i].Wrong {
			fmt.Fprintf(r.Log, "seed %d (%s): %s\n", seed, list[i].Name, wrong)
		}
		return nil
	})
	return list, err
}

// verdicts judges instances by rising seed until n are without a plan.
func (b *bench) verdicts(r *instrument.Run, t *instrument.Table) error {
	var list []*verdict
	for next := b.first; len(list) < b.n; {
		left := b.n - len(list)
		more, err := judged(r, next, left)
		if err != nil {
			return err
		}
		next += uint64(left)
		list = append(list, slices.DeleteFunc(more, func(v *verdict) bool { return v.Feasible })...)
	}
	byName := map[string][]*verdict{}
	for _, v := range list {
		byName[v.Name] = append(byName[v.Name], v)
	}
	wrong, near := 0, 0
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		bad, nearHere, wrongHere, slowest := 0, 0, 0, time.Duration(0)
		for _, v := range byName[name] {
			nearHere += v.Near
			slowest = max(slowest, v.Took)
			if v.Bad {
				bad++
			}
			if len(v.Wrong) > 0 {
				wrongHere++
			}
		}
		t.Add(len(byName[name]), name, bad, nearHere, wrongHere, slowest.Round(10*time.Millisecond))
		wrong, near = wrong+wrongHere, near+nearHere
	}
	r.Figure(figures.Figure{
		Claim: "infeasible problems without a verdict, with a wrong cause, or with a nearest value that is not feasible or not within 1 % of the best", Source: "asked of this project",
		Asked: "0 of 1000", Measured: float64(wrong), Unit: fmt.Sprintf("of %d", len(list)), Holds: figures.If(wrong == 0 && len(list) >= 1000),
		Note: fmt.Sprintf("%d nearest values were solved, each and what is 1 %% nearer", near),
	})
	return nil
}
