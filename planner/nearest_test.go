package planner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// microseconds is a pool problem whose SLO is of about a microsecond.
func microseconds(slo time.Duration) Inputs {
	return Inputs{
		Profile: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "k0"}}, Models: []formats.ProfileModel{{
			Model: "m0", Blocks: []formats.Block{{Name: "0", WeightBytes: 18_000_000}},
			Measurements: []formats.Measurement{
				{Device: "k0", Share: 1, Batch: 4, Blocks: []formats.Latency{{WallUS: document.Micros(575)}}},
				{Device: "k0", Share: 1, Batch: 6, Blocks: []formats.Latency{{WallUS: document.Micros(6300)}}},
			}}}},
		Cluster:  &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "k0", Count: 2, NICGbps: 40, USDPerHour: 0.8, Watts: 197}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.WorkloadModels{{Model: "m0", SLO: document.SLO{Duration: slo}, Weight: 2}}},
	}
}

// The search for what is nearest ends also where an SLO is of a microsecond, and what it
// finds is longer than what was asked, never nothing.
func TestNearestOfMicroseconds(t *testing.T) {
	for _, slo := range []time.Duration{500, 900, 1725} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		opt := Options{}
		opt.Set("objective", "power")
		opt.Set("min-load", 1.0)
		opt.Set("margin", 0.4)
		before := cputime.Used()
		_, err := Solve(ctx, microseconds(slo), opt, highs.Solver{}, nil)
		if took := cputime.Used() - before; ctx.Err() != nil || took > 5*time.Second {
			t.Fatalf("%v: not done after %v of CPU time", slo, took)
		}
		inf, ok := errors.AsType[*InfeasibleError](err)
		if !ok {
			t.Fatalf("%v: %v, expected that it is infeasible", slo, err)
		}
		if us := float64(slo) / 1e3; inf.Nearest.SLOUS <= us || inf.Nearest.SLOUS > 10 {
			t.Errorf("%v: nearest is an SLO of %v us: %v", slo, inf.Nearest.SLOUS, err)
		}
	}
}

// scriptedSearch is a method whose problem is feasible from a factor of its SLO and up to a part
// of its rate, and that says nothing of what is nearest.
func scriptedSearch(one bool, feasible func(l *kind.Relaxation) bool) (*nearestSearch, *string) {
	var asked *kind.Relaxation
	cut := ""
	return &nearestSearch{
		ctx: context.Background(), remainingTrials: nearTrials, startCPU: cputime.Used(), maxCPU: time.Minute, stopReason: &cut,
		method: &kind.Method{SingleSLO: one, RelaxWorkload: func(s formats.WorkloadSection, l *kind.Relaxation) formats.WorkloadSection {
			asked = l
			models := formats.WorkloadModels{{Model: "m", SLO: document.SLO{Duration: time.Millisecond}, MinRPS: l.ScaledRate(100)}}
			return models
		}},
		problem: &kind.Problem{Documents: Inputs{Cluster: &formats.Cluster{Pools: []formats.Pool{{Device: "d", Count: 1}}},
			Workload: &formats.Workload{Section: formats.WorkloadModels{{Model: "m", SLO: document.SLO{Duration: time.Millisecond}, MinRPS: 100}}}}},
		solve: func(context.Context, *kind.Problem) error {
			if feasible(asked) {
				return nil
			}
			return &InfeasibleError{Constraint: "slo"}
		},
	}, &cut
}

// Where neither a longer SLO nor less load is enough, both are told, and neither is much more
// than it takes.
func TestNearestOfBoth(t *testing.T) {
	n, cut := scriptedSearch(true, func(l *kind.Relaxation) bool { return l.SLOFactor >= 7 && l.ScaledRate(1) <= 0.06 })
	l := n.lessLoadAndLongerSLOs()
	if l == nil || l.SLOFactor < 7 || l.SLOFactor > 7.1 || l.LoadFactor > 0.06 || l.LoadFactor < 0.059 || *cut != "" {
		t.Errorf("%+v (cut %q), expected 7 times the SLO and .06 of the load", l, *cut)
	}
	if n, _ := scriptedSearch(true, func(*kind.Relaxation) bool { return false }); n.lessLoadAndLongerSLOs() != nil {
		t.Error("something is nearest to what nothing is feasible near")
	}
}

// A search that ends for want of trials says so, and one SLO for all has no model's name.
func TestNearestCutShort(t *testing.T) {
	n, cut := scriptedSearch(false, func(l *kind.Relaxation) bool { return l.SLOFactor >= 7 })
	n.remainingTrials = 3
	if n.alternatives(nil); !strings.Contains(*cut, "trials") {
		t.Errorf("cut: %q", *cut)
	}
	text := (&InfeasibleError{Reason: "r", CutShort: "by an interrupt"}).Error()
	if !strings.Contains(text, "cut short by an interrupt") {
		t.Error(text)
	}
	for _, one := range []bool{false, true} {
		n, _ := scriptedSearch(one, nil)
		l, _ := n.relaxFurther(kind.Relaxation{}, &InfeasibleError{Model: "m", Nearest: kind.NearestFeasible{SLOUS: 1.2}})
		l, _ = n.relaxFurther(l, &InfeasibleError{Nearest: kind.NearestFeasible{SLOUS: 7}})
		near := n.asNearest(&l, &InfeasibleError{Model: "m"})
		for _, m := range near.SLOs {
			if m.Model == "" && !one && len(near.SLOs) < 2 || m.SLOUS <= 0 {
				t.Errorf("%+v", near)
			}
		}
		if one && (near.SLOUS != 7 || near.SLOs != nil) {
			t.Errorf("one SLO: %+v", near)
		}
	}
}
