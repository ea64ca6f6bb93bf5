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

// documents returns what a plan of an application is made from, on some devices of one kind.
func documents(app formats.Application, devices int, models ...formats.ProfileModel) planner.Inputs {
	return planner.Inputs{Profile: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "gpu"}}, Models: models},
		Cluster:  &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "gpu", Count: devices}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{app}}}
}

// inputs returns the documents of a pipeline at a rate.
func (p *pipeline) inputs(rate float64) planner.Inputs {
	app := formats.Application{Name: p.name, SLO: document.SLO{Duration: p.slo}, RPS: rate}
	var models []formats.ProfileModel
	for i := range p.stages {
		s := &p.stages[i]
		models = append(models, measuredModel(s.name, s.ms))
		app.Modules = append(app.Modules, formats.Module{Name: s.name, Predecessors: s.after})
	}
	return documents(app, 200, models...)
}

// fewestDevices returns the options of a plan with the fewest devices, but for its margin.
func fewestDevices() map[string]any {
	return map[string]any{"objective": "gpus", "gap": 0., "max-batch": 32}
}

// solve plans a pipeline for a rate.
func (p *pipeline) solve(ctx context.Context, margin, rate float64) (*formats.Plan, error) {
	values := fewestDevices()
	values["margin"] = margin
	return solved(ctx, p.inputs(rate), values)
}

// problem returns the problem that solve plans, as the planner has it.
func (p *pipeline) problem(rate float64) (*kind.Problem, error) {
	problem := &kind.Problem{Documents: p.inputs(rate), Values: document.NewValues(formats.PlanOptions(formats.PlanFlow)), Seed: 1}
	for name, value := range fewestDevices() {
		if err := problem.Values.Set(name, value); err != nil {
			return nil, err
		}
	}
	return problem, nil
}

func solved(ctx context.Context, in planner.Inputs, values map[string]any) (*formats.Plan, error) {
	res, err := planner.Solve(ctx, in, planner.Options{Values: values}, highs.Solver{}, nil)
	if err != nil {
		return nil, err
	}
	return res.Plan, nil
}

// measuredModel returns a model of a profile with the batches that plans choose from. ms are its times by batch in milliseconds.
func measuredModel(name string, ms []float64) formats.ProfileModel {
	model := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all"}}}
	for _, batch := range batches {
		if batch <= len(ms) {
			model.Measurements = append(model.Measurements, measurement("gpu", batch, document.Micros(math.Round(ms[batch-1]*1e6))))
		}
	}
	return model
}

// measurement returns the time of a batch of a model of one block.
func measurement(device string, batch int, took document.Micros) formats.Measurement {
	whole := formats.Latency{WallUS: took}
	return formats.Measurement{Device: device, Share: 1, Batch: batch, WholeModel: &whole, Blocks: []formats.Latency{whole}}
}
