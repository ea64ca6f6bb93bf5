package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// Of too many requests, what is called nearest is feasible by simulation, and a little
// nearer is not. A bound on work alone is no such value.
func TestNearestLoad(t *testing.T) {
	at := func(rate, slo float64, more int, untold bool) error {
		in := documents()
		in.Cluster.Pools = in.Cluster.Pools[:1]
		in.Cluster.Pools[0].Count = 1 + more
		l := in.Workload.Section.(*formats.LLM)
		l.Models, l.Classes = l.Models[:1], l.Classes[:1]
		class := &l.Classes[0]
		class.Shares, class.RPS, class.SLO.Duration = nil, 30*rate, time.Duration(12e9*slo)
		opt := planner.Options{SkipNearest: untold}
		opt.Set("objective", "gpus")
		_, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		return err
	}
	inf, ok := errors.AsType[*planner.InfeasibleError](at(1, 1, 0, false))
	if !ok || len(inf.Alternatives) == 0 {
		t.Fatalf("%v: expected that it is infeasible, and what is nearest", inf)
	}
	for _, near := range append([]kind.NearestFeasible{inf.Nearest}, inf.Alternatives...) {
		rate, slo, more := 1.0, 1.0, 0
		switch {
		case near.LoadFactor > 0:
			rate = near.LoadFactor
		case near.SLOFactor > 0:
			slo = near.SLOFactor
		default:
			more = near.Devices[0].Count
		}
		if err := at(rate, slo, more, true); err != nil {
			t.Errorf("nearest %s: %v", near, err)
		}
		if rate < 1 && at(rate*1.01, slo, more, true) == nil || slo > 1 && at(rate, slo/1.01, more, true) == nil || more > 0 && at(rate, slo, more-1, true) == nil {
			t.Errorf("nearest %s: there is a plan nearer than that", near)
		}
	}
}
