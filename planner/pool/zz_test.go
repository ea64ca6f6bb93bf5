package pool

import (
	"context"
	"fmt"
	"testing"
	"slices"

	"inferplan/solver/highs"
)

func TestZZ(t *testing.T) {
	z := scaleCases[1].synthetic
	for seed := range uint64(1) {
		z.seed = seed
		p := z.problem()
		fmt.Println("sequences", p.sequences())
		x, err := newSearch(context.Background(), p, highs.Solver{}, Options{Gap: .01, Seed: 1}, throughput{})
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for i := range x.templates {
			have[x.templates[i].Key()] = true
		}
		for d := range 3 {
			b := processCPU()
			list, _, err := p.enumerate(d)
			if err != nil {
				t.Fatal(err)
			}
			took := processCPU() - b
			var losses []float64
			var new []bool
			type lt struct { l float64; n bool }
			var all []lt
			for i := range list {
				all = append(all, lt{x.catalogue.loss(&list[i], x.lp)/x.lp.bound, !have[list[i].Key()]})
			}
			slices.SortFunc(all, func(a, b lt) int { if a.l < b.l { return -1 }; return 1 })
			n := 0
			for i := range all { if all[i].n { n++ } 
				if i == 10 || i == 30 || i == 100 || i == 300 || i == 1000 || i == 3000 { fmt.Printf("   first %d: %d new, loss %.5f %%\n", i, n, 100*all[i].l) } }
			_ = losses; _ = new
			fmt.Printf("model %d: %d templates, %.3f s enum\n", d, len(list), took.Seconds())
		}
	}
}
