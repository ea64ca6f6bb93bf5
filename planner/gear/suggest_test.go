package gear

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// What cannot be planned says which range and which model, and what would do:
// each of devices, rate and SLO by itself makes it feasible, and one device less
// does not.
func TestInfeasibleSaysWhatWouldDo(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name    string
		f       *family
		devices int
		peak    float64
		slo     time.Duration
		model   string
	}{
		{"too much work", &llama4, 1, 400, 0, "3B"},
		{"too little time", &llama4, 1, 60, 60 * time.Millisecond, "3B"},
		{"too much work for bert5", &bert5, 1, 60_000, 0, "tiny"},
	} {
		if c.f == &bert5 && !long {
			continue
		}
		p := c.f.problem(t, c.devices, 5)
		p.Edges, p.Weights = Ranges(c.peak, 4), Zipf(4)
		if c.slo > 0 {
			p.SLO = c.slo
		}
		_, err := Solve(ctx, p, nil, Options{Seed: 1})
		inf, ok := errors.AsType[*Infeasible](err)
		if !ok {
			t.Fatalf("%s: %v", c.name, err)
		}
		t.Logf("%s: %s", c.name, inf.Reason())
		if inf.Model != c.model || inf.Range < 0 || inf.Range > 3 || inf.Edge != p.Edges[inf.Range] || !strings.Contains(inf.Reason(), c.model) {
			t.Errorf("%s: %+v", c.name, inf)
		}
		if inf.Enough <= c.devices || inf.Holds <= 0 {
			t.Fatalf("%s: %+v", c.name, inf)
		}
		try := func(change func(q *Problem)) error {
			q := *p
			change(&q)
			_, err := Solve(ctx, &q, nil, Options{Seed: 1})
			return err
		}
		if err := try(func(q *Problem) { q.Devices = inf.Enough }); err != nil {
			t.Errorf("%s: on %d devices: %v", c.name, inf.Enough, err)
		}
		if err := try(func(q *Problem) { q.Devices = inf.Enough - 1 }); err == nil {
			t.Errorf("%s: %d devices are enough as well", c.name, inf.Enough-1)
		}
		if err := try(func(q *Problem) { q.Edges = Ranges(inf.Holds, 4) }); err != nil {
			t.Errorf("%s: up to %v requests per second: %v", c.name, inf.Holds, err)
		}
		if inf.SLO > 0 {
			if err := try(func(q *Problem) { q.SLO = inf.SLO }); err != nil {
				t.Errorf("%s: within %v: %v", c.name, inf.SLO, err)
			}
		}
	}
}

// Where not one sample is in time, the least SLO is named; where memory is
// missing, that.
func TestInfeasibleAlone(t *testing.T) {
	p := llama4.problem(t, 1, 5)
	p.SLO = 10 * time.Millisecond
	_, err := Solve(context.Background(), p, nil, Options{Seed: 1})
	inf, ok := errors.AsType[*Infeasible](err)
	if !ok || inf.SLO != 24*time.Millisecond || !strings.Contains(inf.Reason(), "24ms") {
		t.Errorf("%v", err)
	}
	p.Memory = 1000
	_, err = Solve(context.Background(), p, nil, Options{Seed: 1})
	if inf, ok := errors.AsType[*Infeasible](err); !ok || inf.SLO != 0 || !strings.Contains(inf.Reason(), "memory") {
		t.Errorf("%v", err)
	}
}
