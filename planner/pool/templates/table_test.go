package templates

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/testkit/pooldraw"
)

// The nearest feasible SLO is exact: a pipeline exists there and not a
// microsecond below.
func TestNearestSLOIsExact(t *testing.T) {
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 1, Pools: 2, Count: 3, Shares: 2, Blocks: 3, Batches: 2, Partitions: 2, Memory: true, TimePools: true})
		m := &p.Models[0]
		m.SLO = 1 + time.Duration(rapid.IntRange(0, int(m.SLO)/2).Draw(t, "tight"))
		m.Margin = kind.Margin(m.SLO, p.MarginShare)
		_, err := ListAll(p)
		var inf *kind.InfeasibleError
		if !errors.As(err, &inf) || inf.Constraint != "slo" {
			return
		}
		seen++
		nearest := time.Duration(inf.Nearest.SLOUS * 1000)
		for _, c := range []struct {
			slo time.Duration
			any bool
		}{{nearest, true}, {nearest - time.Microsecond, false}} {
			m.SLO, m.Margin = c.slo, kind.Margin(c.slo, p.MarginShare)
			if list := pooldraw.EveryPipeline(p, 0); len(list) > 0 != c.any {
				t.Errorf("%d pipelines at %v, nearest feasible is %v", len(list), c.slo, nearest)
			}
		}
	})
	t.Logf("%d problems had too tight an SLO", seen)
	if seen == 0 {
		t.Error("no SLO was too tight")
	}
}

// A template table holds every template, and makes it again.
func TestSieveHoldsEveryTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawMany(t)
		for d := range p.Models {
			list, tooBig, err := p.ListTemplates(d)
			if err != nil {
				t.Fatal(err)
			}
			s, large, err := NewTable(p, d)
			if err != nil || large != tooBig || s.Len() != len(list) {
				t.Fatalf("%d templates and %d too large, listed are %d and %d (%v)", s.Len(), large, len(list), tooBig, err)
			}
			for i := range list {
				got, err := s.Build(p, i)
				if err != nil || !reflect.DeepEqual(*got, list[i]) {
					t.Fatalf("template %d is %+v, listed is %+v (%v)", i, got, list[i], err)
				}
			}
		}
	})
}
