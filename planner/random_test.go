package planner

import (
	"math"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
	"inferplan/solver/queueing"
)

// oneModel is a model of 10 ms, one request a batch, with an SLO of 80 ms and weight 2, on one device.
func oneModel(arrivals *formats.Arrivals) Inputs {
	run := formats.Latency{WallUS: document.Micros(10 * time.Millisecond)}
	return Inputs{
		Profile: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "gpu"}}, Models: []formats.ProfileModel{{
			Model: "m", Blocks: []formats.Block{{Name: "all", WeightBytes: 1}},
			Measurements: []formats.Measurement{{Device: "gpu", Share: 1, Batch: 1, WholeModel: &run, Blocks: []formats.Latency{run}, MemoryBytes: 1}}}}},
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "gpu", Count: 1, PerNode: 1, MaxShares: 1}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Arrivals: arrivals,
			Section: formats.WorkloadModels{{Model: "m", SLO: document.SLO{Duration: 80 * time.Millisecond}, Percentile: "p99", Weight: 2}}},
	}
}

// The bound of one model knows that random requests which may not wait for ever are turned away, and plans come near it.
// Arrivals of another kind, and shares that hardly a run shows, have the bound of the fluid program.
func TestBoundOfRandomArrivals(t *testing.T) {
	for name, c := range map[string]struct {
		arrivals   *formats.Arrivals
		attainment float64
		bound      float64 // requests per second
		reached    float64 // part of it that the plan states at least
	}{
		"poisson":                  {nil, 0, 100 * queueing.MaxLoad(7, .01), .95},
		"bursts":                   {&formats.Arrivals{Process: "gamma", CV: 2}, 0, 100 / .99, .2},
		"almost all":               {nil, .9999, 100 / .9999, .5},
		"nine of ten, by a number": {nil, .9, 100 * queueing.MaxLoad(7, .1), .9},
	} {
		t.Run(name, func(t *testing.T) {
			opt := Options{TestSettings: kind.TestSettings{Attainment: c.attainment}}
			opt.Set("margin", Auto)
			res, err := Solve(t.Context(), oneModel(c.arrivals), opt, highs.Solver{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			o := res.Plan.Objective
			if o.Bound == nil || math.Abs(*o.Bound*2/c.bound-1) > 1e-4 {
				t.Fatalf("bound %v, expected %v", o.Bound, c.bound/2)
			}
			if part := o.Value / *o.Bound; part < c.reached || part > 1 {
				t.Errorf("the plan states %.3f of its bound, expected %v to 1", part, c.reached)
			}
		})
	}
}
