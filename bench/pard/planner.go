package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// onFourKinds returns a pipeline's documents with 16 devices of each of four kinds. Each is slower than the last, by more for later modules, and cheaper.
func (p *pipeline) onFourKinds(rate float64) planner.Inputs {
	in := p.inputs(rate)
	in.Profile.Devices, in.Cluster.Pools = nil, nil
	for k, name := range []string{"A", "B", "C", "D"} {
		in.Profile.Devices = append(in.Profile.Devices, formats.ProfileDevice{Device: name})
		in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: name, Count: 16, USDPerHour: 1 / (1 + .6*float64(k))})
	}
	for u := range in.Profile.Models {
		m := &in.Profile.Models[u]
		fastest := m.Measurements
		m.Measurements = nil
		for k, d := range in.Profile.Devices {
			slowdown := 1 + float64(k)*(.5+.1*float64(u))
			for _, x := range fastest {
				m.Measurements = append(m.Measurements, measurement(d.Device, x.Batch, document.Micros(math.Round(slowdown*float64(x.WholeModel.WallUS)))))
			}
		}
	}
	return in
}

// solveTimed plans and adds the CPU seconds that it took to a list.
func solveTimed(ctx context.Context, in planner.Inputs, values map[string]any, spent *[]float64) (*formats.Plan, error) {
	before := cputime.Used()
	plan, err := solved(ctx, in, values)
	*spent = append(*spent, (cputime.Used() - before).Seconds())
	return plan, err
}

// measurePlanner measures the time of plans for 64 devices of four kinds.
func (b *bench) measurePlanner(r *instrument.Run, _ *instrument.Table) error {
	var alone, certified []float64 // CPU seconds
	for _, p := range b.pipes {
		largest, err := solveTimed(r.Ctx, p.onFourKinds(0), map[string]any{"max-batch": 32}, &alone)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for _, part := range []float64{.5, .9} {
			for _, objective := range []string{"gpus", "cost"} {
				in := p.onFourKinds(part * largest.Objective.Value)
				if _, err := solveTimed(r.Ctx, in, map[string]any{"max-batch": 32, "objective": objective}, &alone); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				if part > .5 {
					continue
				}
				if _, err := solveTimed(r.Ctx, in, map[string]any{"max-batch": 32, "objective": objective, "margin": "auto"}, &certified); err != nil {
					return fmt.Errorf("%s by simulation: %w", p.name, err)
				}
			}
		}
	}
	const source = "tm, lv, ga and da on devices each slower than the last"
	r.AtMost(fmt.Sprintf("planner, 64 devices of four kinds: CPU time, most of %d plans for throughput, devices and cost", len(alone)), source, 2, "s", slices.Max(alone))
	r.AtMost(fmt.Sprintf("planner, 64 devices of four kinds: CPU time with devices and batches searched and certified by simulation, most of %d plans", len(certified)), source, 2, "s", slices.Max(certified)).Note = "asked of the planner; simulation is included here"
	return nil
}
