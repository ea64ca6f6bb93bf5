package planner

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// threeKinds are three models of ten blocks, no two alike, on three kinds of GPUs
// without a network, with other weights and SLOs each.
func threeKinds(seed uint64) Inputs {
	r := rand.New(rand.NewPCG(seed, 1))
	const blocks = 10
	base := []struct {
		model string
		times map[string][2]float64 // fixed and per sample, in ms
	}{
		{"resnet50", map[string][2]float64{"A10G": {.95, .48}, "L4": {.9, .62}, "T4": {1.4, 1.25}}},
		{"bert", map[string][2]float64{"A10G": {1.5, .8}, "L4": {1.6, 1.1}, "T4": {2.9, 2.4}}},
		{"yolo", map[string][2]float64{"A10G": {1.9, 1.3}, "L4": {2.1, 1.7}, "T4": {4.2, 3.6}}},
	}
	p := &formats.Profile{Format: formats.FormatProfile}
	for _, b := range base {
		part, sum := make([]float64, blocks), 0.0
		m := formats.ProfileModel{Model: b.model}
		for i := range part {
			part[i] = 0.7 + 0.6*r.Float64()
			sum += part[i]
			m.Blocks = append(m.Blocks, formats.Block{Name: fmt.Sprint(i), CutBytesFP16: 100_000})
		}
		for _, device := range []string{"A10G", "L4", "T4"} {
			for _, batch := range []int{1, 2, 4, 8, 16} {
				ms := formats.Measurement{Device: device, Share: 1, Batch: batch}
				for i := range part {
					took := (b.times[device][0] + b.times[device][1]*float64(batch)) * part[i] / sum
					ms.Blocks = append(ms.Blocks, formats.Latency{WallUS: document.Micros(math.Round(took * 1e6))})
				}
				m.Measurements = append(m.Measurements, ms)
			}
		}
		p.Models = append(p.Models, m)
	}
	return Inputs{
		Profile: p,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Host: formats.HostShared, Pools: []formats.Pool{
			{Device: "L4", Count: 2, USDPerHour: 0.8}, {Device: "A10G", Count: 1, USDPerHour: 1}, {Device: "T4", Count: 4, USDPerHour: 0.53},
		}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.WorkloadModels{
			{Model: "resnet50", SLO: document.SLO{Duration: 50 * time.Millisecond}, Weight: 3},
			{Model: "bert", SLO: document.SLO{Duration: 100 * time.Millisecond}, Weight: 2},
			{Model: "yolo", SLO: document.SLO{Duration: 100 * time.Millisecond}, Weight: 1},
		}},
	}
}

// Rates that the devices do not carry have a verdict, whatever the solver makes of the
// program, and what is called nearest is feasible: 1 % more is not.
func TestTooMuchLoad(t *testing.T) {
	for seed, load := range []float64{860, 1100, 2000} {
		objective := []string{"throughput", "cost"}[seed%2]
		in := threeKinds(uint64(seed) + 1)
		at := func(load float64) error {
			opt := Options{}
			opt.Set("objective", objective)
			opt.Set("min-load", load)
			opt.Set("gap", 0.2) // that there is a plan counts, not how good it is
			_, err := Solve(t.Context(), in, opt, highs.Solver{}, nil)
			return err
		}
		err := at(load)
		inf, ok := errors.AsType[*InfeasibleError](err)
		if !ok || inf.Constraint != "min_rps" || len(inf.Conflict) == 0 {
			t.Fatalf("%s of %g: %v, expected that the rates are too high, and what excludes each other", objective, load, err)
		}
		near := inf.Nearest.MinLoadRPS
		if err := at(near); err != nil {
			t.Errorf("%s of %g: nearest is %g, and there: %v", objective, load, near, err)
		}
		if err := at(near * 1.01); err == nil {
			t.Errorf("%s of %g: nearest is %g, and 1 %% more is feasible as well", objective, load, near)
		}
		alone := func(n kind.NearestFeasible) bool { return n.SLOFactor > 0 || len(n.Devices) == 1 }
		for _, or := range inf.Alternatives {
			if !alone(or) {
				t.Errorf("%s of %g: %s is another way?", objective, load, or)
			}
		}
	}
}
