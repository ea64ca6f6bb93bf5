package verify

import (
	"testing"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// A plan for the most goodput is held against the best plan of today, and against itself if that is better.
func TestGoodputIsComparedWithTheBestPlan(t *testing.T) {
	report := func(attainment float64) *formats.Report {
		return &formats.Report{Models: []formats.ModelReport{{OfferedRPS: 4, Counts: formats.Counts{Attainment: attainment}}, {OfferedRPS: 2, Counts: formats.Counts{Attainment: 1}}}}
	}
	best := func(objective string, value float64) *formats.Plan {
		return &formats.Plan{Objective: formats.Objective{Name: objective, Value: value}}
	}
	for _, c := range []struct {
		promised, best *formats.Plan
		now            float64 // attainment of the first model
		expected       float64 // 0 if there is no figure
	}{
		{best("goodput", 4), best("goodput", 5.5), 0.5, 5.5},
		{best("goodput", 4), best("goodput", 3.9), 0.5, 4},
		{best("goodput", 4), best("goodput", 3), 0.4, 3.6},
		{best("goodput", 4), nil, 0.5, 0},
		{best("gpus", 4), best("gpus", 3), 0.5, 0},
	} {
		pairs := goodputPair(&kind.CheckInput{Promised: c.promised, BestPlan: c.best}, report(0.5), report(c.now))
		switch {
		case c.expected == 0 && len(pairs) > 0:
			t.Errorf("%+v: %+v", c, pairs)
		case c.expected > 0 && (len(pairs) != 1 || pairs[0].Old != 4 || pairs[0].New != c.expected):
			t.Errorf("%+v: %+v, want %g", c, pairs, c.expected)
		}
	}
}
