package flow

import (
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/highs"
)

// A baseline's plan keeps deadlines and carries the rates. The method's own, over
// the same variants, is never dearer.
func TestBaselines(t *testing.T) {
	planned := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t)
		for a := range p.apps {
			p.apps[a].floor = 0
			for i := range p.apps[a].nodes {
				p.apps[a].nodes[i].of = p.apps[a].nodes[i].of[:1]
			}
		}
		best, err := (&search{p: p, solver: highs.Solver{}}).cheapest(t.Context())
		for _, name := range []string{AlgorithmEven, AlgorithmProportional, AlgorithmNexus, AlgorithmInferLine} {
			for a := range p.apps {
				for i := range p.apps[a].nodes {
					if p.apps[a].nodes[i].best(p) < 0 {
						return
					}
				}
			}
			s, failed := (&baseline{p: p}).plan(name)
			if failed != nil {
				continue
			}
			planned[name]++
			if err != nil {
				t.Fatalf("%s has a plan where there is none: %v", name, err)
			}
			for a := range p.apps {
				if took := p.took(s, a); took > p.apps[a].budget() {
					t.Errorf("%s: %v of %v", name, took, p.apps[a].budget())
				}
			}
			for k := range p.pools {
				n := 0
				for u := range s.devices {
					n += s.devices[u][k]
				}
				if n > p.pools[k].count {
					t.Errorf("%s: %d of %d devices", name, n, p.pools[k].count)
				}
			}
			if f := p.factor(s); f < 1-1e-6 {
				t.Errorf("%s carries %v of the rates", name, f)
			}
			if price := p.price(s); price < best.value*(1-1e-9) {
				t.Errorf("%s costs %v, the best %v", name, price, best.value)
			}
		}
	})
	for _, name := range []string{AlgorithmEven, AlgorithmProportional, AlgorithmNexus, AlgorithmInferLine} {
		if planned[name] == 0 {
			t.Errorf("%s had no plan", name)
		}
	}
}
