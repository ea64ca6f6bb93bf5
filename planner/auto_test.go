package planner

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/solver/highs"
)

// The margin chosen certifies at least what each margin of the grid does, is
// stored with what was tried, and comes out the same again.
func TestMarginAuto(t *testing.T) {
	cert := CertifyOptions{Runs: 2, Duration: 2 * time.Second}
	for name, c := range map[string]struct {
		in   Inputs
		edit func(*Options)
	}{
		"two kinds":      {twoKinds(), func(*Options) {}},
		"one CPU":        {oneCPU(2), func(*Options) {}},
		"fewest devices": {twoKinds(), func(o *Options) { o.Objective, o.MinLoad = ObjectiveGPUs, 100 }},
	} {
		t.Run(name, func(t *testing.T) {
			opt := DefaultOptions()
			opt.Gap = 0.05
			c.edit(&opt)
			res, err := SolveAuto(context.Background(), c.in, opt, cert, highs.Solver{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := res.Plan
			if p.Certified == nil || !slices.Contains(autoMargins, p.Options.Margin) {
				t.Fatalf("options %+v, certified %+v", p.Options, p.Certified)
			}
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
			said := p.Assumptions[len(p.Assumptions)-1]
			t.Log(said)
			if !strings.Contains(said, "chosen by simulation") || strings.Count(said, "certifies") < len(autoMargins) {
				t.Errorf("assumption %q", said)
			}
			if name != "two kinds" { // the slowest
				again, err := SolveAuto(context.Background(), c.in, opt, cert, highs.Solver{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(planBytes(t, p), planBytes(t, again.Plan)) {
					t.Error("another plan the second time")
				}
			}
			fixed := opt
			fixed.Margin = 0.4
			at := mustSolve(t, c.in, fixed).Plan
			if err := Certify(context.Background(), at, cert); err != nil {
				t.Fatal(err)
			}
			if opt.Objective != ObjectiveThroughput {
				if got := certifiedRate(p); got < opt.MinLoad || certifiedRate(at) >= opt.MinLoad && p.Objective.Value > at.Objective.Value {
					t.Errorf("%v devices at load %v, with margin 0.4 %v at %v", p.Objective.Value, p.Certified.LoadFactor, at.Objective.Value, at.Certified.LoadFactor)
				}
				return
			}
			if got, want := certifiedRate(p), certifiedRate(at); got < want {
				t.Errorf("certifies %v, margin 0.4 certifies %v", got, want)
			}
		})
	}
}

// certifiedRate is the least certified rate per weight.
func certifiedRate(p *formats.Plan) float64 {
	rate := math.Inf(1)
	for i, m := range p.Certified.Models {
		rate = min(rate, m.RPS/p.Models[i].Weight)
	}
	return rate
}

// Where only a smaller margin leaves a pipeline, that one is chosen.
func TestMarginAutoWhereTheDefaultIsInfeasible(t *testing.T) {
	in := oneCPU(1)
	for i := range in.Workload.Models {
		in.Workload.Models[i].SLO = formats.SLO{Duration: 11 * time.Millisecond}
	}
	opt := DefaultOptions()
	if _, err := Solve(context.Background(), in, opt, highs.Solver{}, nil); err == nil {
		t.Fatal("feasible at 0.4")
	}
	res, err := SolveAuto(context.Background(), in, opt, CertifyOptions{Runs: 1, Duration: 2 * time.Second}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Plan.Options.Margin >= 0.4 {
		t.Errorf("margin %v", res.Plan.Options.Margin)
	}
	t.Log(res.Plan.Assumptions[len(res.Plan.Assumptions)-1])
}
