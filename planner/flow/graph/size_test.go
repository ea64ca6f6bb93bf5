package graph

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/highs"
)

// From any start, what the search finds carries the rates on the devices there are and
// keeps the deadlines and attains what is asked, and no device can be spared. Batches
// change where they may.
func TestSizeSearchKeepsRatesAndDeadlines(t *testing.T) {
	found, changed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		start, err := (&planSearch{problem: p, solver: highs.Solver{}}).cheapest(t.Context())
		if err != nil {
			return
		}
		// Attainment falls with the load of the busiest model, and as batches fill the deadlines.
		shown := func(s *solution, _ bool) (float64, error) {
			x := min(1, p.rateFactor(s)/1.2)
			for a := range p.apps {
				x -= .3 * float64(p.longestPathTime(s, a)) / float64(p.apps[a].budget())
			}
			return x, nil
		}
		asked, _ := shown(start.solution, false)
		asked += rapid.Float64Range(0, .1).Draw(t, "more")
		z := &sizeSearch{p: p, requestedAttainment: asked, changeBatches: rapid.Bool().Draw(t, "batches"), simulate: shown, attainments: map[string]float64{}}
		s, err := z.cheapest(start.solution)
		if s == nil || err != nil {
			return
		}
		found++
		if !slices.Equal(s.level, start.solution.level) {
			changed++
		}
		if has, _ := shown(s, false); has < asked || !p.keepsDeadlines(s) || p.rateFactor(s) < 1-1e-6 {
			t.Fatalf("attains %v of %v, carries %v", has, asked, p.rateFactor(s))
		}
		for k := range p.pools {
			n := 0
			for u := range s.devices {
				n += s.devices[u][k]
			}
			if n > p.pools[k].count {
				t.Fatalf("%d of %d devices", n, p.pools[k].count)
			}
		}
		for _, less := range z.neighbours(s, -1) {
			if has, _ := shown(less, false); has >= asked {
				t.Fatal("a device can be spared")
			}
		}
	})
	if found == 0 || changed == 0 {
		t.Errorf("%d found, %d with other batches", found, changed)
	}
}
