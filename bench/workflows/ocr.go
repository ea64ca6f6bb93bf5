package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/bench/ppocr"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/stepstest"
)

// The size of the pages.
const (
	pageWidth  = 320
	pageHeight = 192
	mostLines  = 3
	pages      = 48
	batch      = 4
)

// ocr is the workflow with its plan and pages.
type ocr struct {
	dir   string
	plan  *formats.Plan
	pages []page
	keys  []string
}

// page is an image and the lines on it, as they are to be read.
type page struct {
	image  []byte
	lines  []string
	turned bool
}

// newOCR writes and measures the models, plans them and draws pages.
func newOCR(ctx context.Context, dir string, budget time.Duration) (*ocr, error) {
	o := &ocr{dir: dir}
	var err error
	if o.keys, err = stepstest.Keys(); err != nil {
		return nil, err
	}
	profile, err := ppocr.Measure(ctx, dir, pageWidth, pageHeight, budget)
	if err != nil {
		return nil, err
	}
	if err := o.solve(ctx, profile); err != nil {
		return nil, err
	}
	return o, o.draw()
}

// solve plans one device, then gives every model batches of 4, and the device no room
// for all models.
func (o *ocr) solve(ctx context.Context, profile *formats.Profile) error {
	workload, err := formats.ReadWorkload("examples/ocr/pages.yaml")
	if err != nil {
		return err
	}
	res, err := planner.Solve(ctx, planner.Inputs{Profile: profile,
		Cluster:  &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: profile.Devices[0].Device, Count: 1}}},
		Workload: workload}, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		return fmt.Errorf("planning the workflow: %w", err)
	}
	o.plan = res.Plan
	o.plan.Policy.Name = "dyorc"
	flow := formats.FlowOf(o.plan)
	all, least := int64(0), int64(1)<<62
	for i := range o.plan.Deployment {
		d, m := &o.plan.Deployment[i], &flow.Modules[i]
		if err := widen(d, profile); err != nil {
			return err
		}
		all, least = all+m.WeightBytes, min(least, m.WeightBytes)
		m.WorkingBytes, m.Resident = 0, nil
	}
	o.plan.Pools[0].Memory = document.Bytes(all - least/2)
	for i := range flow.Applications {
		flow.Applications[i].SLOUS = document.Micros(10 * time.Minute) // latencies are judged, not refused
	}
	if err := o.plan.Validate(); err != nil {
		return fmt.Errorf("the plan with larger batches: %w", err)
	}
	return nil
}

// widen gives a deployed model batches up to the largest that was measured.
func widen(d *formats.Deployed, profile *formats.Profile) error {
	i := slices.IndexFunc(profile.Models, func(m formats.ProfileModel) bool { return m.Model == d.Model })
	if i < 0 || len(d.Pipelines) != 1 || len(d.Pipelines[0].Stages) != 1 {
		return errors.New("the plan has other models, or more stages, than expected")
	}
	p := &d.Pipelines[0]
	stage := &p.Stages[0]
	stage.InferUS = nil
	for size := 1; size <= batch; size++ {
		for _, x := range profile.Models[i].Measurements {
			if x.Batch >= size {
				stage.InferUS = append(stage.InferUS, x.WholeModel.WallUS)
				break
			}
		}
	}
	if len(stage.InferUS) != batch {
		return fmt.Errorf("the profile has no batch of %d of %s", batch, d.Model)
	}
	p.Batch, p.LatencyUS, stage.InferRangeUS, stage.MeanUS, stage.IdleUS = batch, stage.InferUS[batch-1], nil, nil, 0
	stage.RPS = min(stage.RPS, stage.GPUs*batch/p.LatencyUS.D().Seconds())
	p.RPS = stage.RPS
	return nil
}

// draw draws pages, some of them upside down.
func (o *ocr) draw() error {
	rng := seeded.New(1, "bench-workflows/pages")
	words := []string{"latency", "inference", "pipeline", "GPU", "request", "deadline", "batch", "model", "worker", "planner"}
	for i := range pages {
		p := page{turned: i%4 == 3}
		for range 1 + rng.IntN(mostLines) {
			p.lines = append(p.lines, fmt.Sprintf("%s %d of %d", words[rng.IntN(len(words))], rng.IntN(1000), 1000+rng.IntN(9000)))
		}
		var err error
		if p.image, err = stepstest.Page(p.lines, pageWidth, pageHeight, 14+rng.IntN(12), 40+rng.IntN(16), 50, 26, p.turned); err != nil {
			return err
		}
		if p.turned {
			slices.Reverse(p.lines) // the last line is at the top
		}
		o.pages = append(o.pages, p)
	}
	return nil
}
