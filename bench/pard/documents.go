package main

import (
	"context"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// inputs are the documents of a pipeline at a rate.
func (p *pipeline) inputs(rate float64) planner.Inputs {
	in := planner.Inputs{Profile: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "gpu"}}},
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "gpu", Count: 200}}}}
	app := formats.Application{Name: p.name, SLO: document.SLO{Duration: p.slo}, RPS: rate}
	for i := range p.stages {
		s := &p.stages[i]
		in.Profile.Models = append(in.Profile.Models, measuredModel(s.name, s.ms))
		app.Modules = append(app.Modules, formats.Module{Name: s.name, Predecessors: s.after})
	}
	in.Workload = &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{app}}
	return in
}

// fewest are the options of a plan with the fewest devices, but for its margin.
func fewest() map[string]any {
	return map[string]any{"objective": "gpus", "gap": 0., "max-batch": 32}
}

// solve plans a pipeline for a rate.
func (p *pipeline) solve(ctx context.Context, margin, rate float64) (*formats.Plan, error) {
	values := fewest()
	values["margin"] = margin
	return solved(ctx, p.inputs(rate), values)
}

// problem returns the problem that solve plans, as the planner has it.
func (p *pipeline) problem(rate float64) (*kind.Problem, error) {
	out := &kind.Problem{Documents: p.inputs(rate), Values: document.NewValues(formats.PlanOptions(formats.PlanFlow)), Seed: 1}
	for name, value := range fewest() {
		if err := out.Values.Set(name, value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func solved(ctx context.Context, in planner.Inputs, values map[string]any) (*formats.Plan, error) {
	res, err := planner.Solve(ctx, in, planner.Options{Values: values}, highs.Solver{}, nil)
	if err != nil {
		return nil, err
	}
	return res.Plan, nil
}

// measuredModel is a model of a profile with the batches that plans choose from.
func measuredModel(name string, ms []float64) formats.ProfileModel {
	out := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all"}}}
	for _, b := range batches {
		if b > len(ms) {
			break
		}
		took := formats.Latency{WallUS: document.Micros(math.Round(ms[b-1] * 1e6))}
		out.Measurements = append(out.Measurements, formats.Measurement{Device: "gpu", Share: 1, Batch: b, WholeModel: &took, Blocks: []formats.Latency{took}})
	}
	return out
}
