package planner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"inferplan/planner/pool/documents"
	"inferplan/solver/highs"
	"inferplan/testkit/bundletest"
)

// Asked for a load, the planner takes the least of what counts, proves how
// little it could be, and says the nearest load where there is none.
func TestLeastAtALoad(t *testing.T) {
	profile, plans := bundletest.Profile(t), bundletest.Plans(t)
	ref := &plans[0]
	for i := range plans {
		if plans[i].Case == "maf19/G4/HC2/w0.3-0.33-0.37" && plans[i].Algorithm == "PPipe" {
			ref = &plans[i]
		}
	}
	in := caseInputs(ref, profile)
	for k := range in.Cluster.Pools {
		in.Cluster.Pools[k].USDPerHour = []float64{0.71, 0.35}[k]
		in.Cluster.Pools[k].Watts = []float64{72, 70}[k]
	}
	opt := caseOptions(ref)
	opt.Set("gap", 0.02)
	for _, objective := range []string{documents.ObjectiveCost, documents.ObjectivePower, documents.ObjectiveGPUs} {
		load := ref.Objective / 2
		opt.Set("objective", objective)
		opt.Set("min-load", load)
		res, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Errorf("%s: %v", objective, err)
			continue
		}
		o := res.Plan.Objective
		t.Logf("%s at half the load: %v, bound %v, gap %.3g, %s, %.0f ms", objective, o.Value, *o.Bound, *o.Gap, res.StoppedBy, res.WallMS)
		if o.Name != objective || *o.Bound > o.Value || *o.Gap < 0 || *o.Gap > 0.1 {
			t.Errorf("%s: objective %+v, bound %v, gap %v", objective, o, *o.Bound, *o.Gap)
		}
		for _, m := range res.Plan.ServedModels() {
			if m.RPS < load*m.Weight*(1-1e-6) {
				t.Errorf("%s: %s gets %v, asked %v", objective, m.Model, m.RPS, load*m.Weight)
			}
		}
		if err := res.Plan.Validate(); err != nil {
			t.Errorf("%s: %v", objective, err)
		}
		for n := 1; n < len(res.Incumbents); n++ {
			if last := n == len(res.Incumbents)-1; res.Incumbents[n].Value > res.Incumbents[n-1].Value || !last && res.Incumbents[n].Value == res.Incumbents[n-1].Value {
				t.Errorf("%s: incumbents do not fall: %v", objective, res.Incumbents)
			}
		}
	}

	load := 2 * ref.Objective
	opt.Set("objective", documents.ObjectiveGPUs)
	opt.Set("min-load", load)
	_, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
	var inf *InfeasibleError
	if !errors.As(err, &inf) || !(inf.Nearest.MinLoadRPS > 0.9*ref.Objective && inf.Nearest.MinLoadRPS < load) || !strings.Contains(err.Error(), "--min-load") {
		t.Fatalf("twice the load: %v", err)
	}
	t.Log(err)
	opt.Set("min-load", inf.Nearest.MinLoadRPS)
	if _, err := Solve(context.Background(), in, opt, highs.Solver{}, nil); err != nil {
		t.Errorf("at the load named as nearest: %v", err)
	}

	opt.Set("min-load", 0)
	if _, err := Solve(context.Background(), in, opt, highs.Solver{}, nil); err == nil || !strings.Contains(err.Error(), "--min-load") {
		t.Errorf("without a load: %v", err)
	}
	opt.Set("objective", documents.ObjectiveCost)
	opt.Set("min-load", 1)
	in.Cluster.Pools[1].USDPerHour = 0
	if _, err := Solve(context.Background(), in, opt, highs.Solver{}, nil); err == nil || !strings.Contains(err.Error(), "usd_per_hour") {
		t.Errorf("without a price: %v", err)
	}
}
