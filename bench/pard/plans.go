package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/kept"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/flow/graph"
	"inferplan/planner/flow/terms"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// The part "plans": the fewest devices that attain 99 % in the simulator, by the
// method without a fixed split of the deadline and by planners that split it. And
// what 64 devices carry with variants of modules, at floors of accuracy.
//
// A planner alone is given what it takes to attain that: margins, and rates that grow
// until its plan does. "sized" is the planner's own search with --margin auto:
// devices join and leave one by one, and batches change, by simulation.

var (
	algorithms = []string{"paths", "even", "proportional", "nexus", "inferline"}
	planned    = []float64{16, 32} // the rates that so many workers carry
	floors     = []float64{.99, .95, .9, .85, .8}
)

const attained = .99

// lowest is the rate that plans are made for first, over that which they are to carry.
const lowest = .94

// sizedToo are the algorithms whose plans are sized by simulation, too, and how their
// rows are called: with a split the batches stay, without one they are searched as well.
var sizedToo = map[string]string{"paths": searched, "nexus": "nexus-sized", "inferline": "inferline-sized"}

const searched = "paths-searched"

// plans measures what is missing.
func (b *bench) plans(ctx context.Context, have results, lines *kept.Lines) error {
	keep := func(name string, measure func() (outcome, error)) error {
		c := cell{Case: name, Policy: "feas", Seed: 1}
		if _, done := have[key(&c)]; done {
			return nil
		}
		before := cputime.Used()
		out, err := measure()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out.CPU = (cputime.Used() - before).Seconds()
		c.outcome, have[key(&c)] = out, out
		return lines.Add(&c)
	}
	for _, p := range b.pipes {
		for _, workers := range planned {
			for _, a := range algorithms {
				err := keep(fmt.Sprintf("plans/%s-%.0f/%s", p.name, workers, a), func() (outcome, error) { return p.fewest(ctx, a, p.capacity(workers)) })
				if name := sizedToo[a]; err == nil && name != "" {
					err = keep(fmt.Sprintf("plans/%s-%.0f/%s", p.name, workers, name), func() (outcome, error) { return p.sized(ctx, a, p.capacity(workers)) })
				}
				if err != nil {
					return err
				}
			}
		}
		for _, floor := range floors {
			for _, with := range []bool{true, false} {
				err := keep(fmt.Sprintf("variants/%s-%.2f/%v", p.name, floor, with), func() (outcome, error) { return b.carried(ctx, p, floor, with) })
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// margins of the SLO that a plan keeps back, of which the best counts.
var margins = []float64{.1, .2, .3}

// fewest finds the fewest devices of an algorithm that attain what is asked at a
// rate, with any of the margins.
func (p *pipeline) fewest(ctx context.Context, algorithm string, rate float64) (outcome, error) {
	best := outcome{Value: math.Inf(1)}
	for _, margin := range margins {
		if err := p.grown(ctx, algorithm, margin, rate, &best); err != nil {
			return best, err
		}
	}
	if math.IsInf(best.Value, 1) {
		return best, errors.New("no plan attains it")
	}
	return best, nil
}

// grown has the planned rate grow in steps of 2 % until simulation shows what is
// asked, or the devices are as many as those of the best.
func (p *pipeline) grown(ctx context.Context, algorithm string, margin, rate float64, best *outcome) error {
	var none *planner.InfeasibleError
	q, err := p.split(algorithm, margin)
	if errors.As(err, &none) {
		return nil
	}
	last := []int(nil)
	for step := range 60 {
		plan, err := q.solve(ctx, margin, rate*(lowest+.02*float64(step)))
		if errors.As(err, &none) {
			return nil
		}
		if err != nil {
			return err
		}
		devices := []int(nil)
		for i := range plan.Deployment {
			l := &plan.Deployment[i].Pipelines[0]
			devices = append(devices, l.Batch, l.Stages[0].Replicas)
		}
		if plan.Objective.Value >= best.Value {
			return nil
		}
		if slices.Equal(devices, last) {
			continue
		}
		last = devices
		out, err := shown(ctx, plan, rate)
		if err != nil {
			return err
		}
		if float64(out.Good) >= attained*float64(out.Requests) {
			*best = out
			return nil
		}
	}
	return nil
}

// sized finds the fewest devices by the search of the planner with simulation as the
// judge. It begins with plans for the lowest rate that any plan is made for: what attains
// enough is for simulation to say. Planners that split the deadline keep the batches of a
// margin, and the best of the margins counts.
func (p *pipeline) sized(ctx context.Context, algorithm string, rate float64) (outcome, error) {
	best, groups := outcome{Value: math.Inf(1)}, [][]*formats.Plan(nil)
	of := []*pipeline(nil) // by group
	for _, margin := range margins {
		q, err := p.split(algorithm, margin)
		plan := (*formats.Plan)(nil)
		if err == nil {
			plan, err = q.solve(ctx, margin, lowest*rate)
		}
		var none *planner.InfeasibleError
		if errors.As(err, &none) {
			continue
		}
		if err != nil {
			return best, err
		}
		if algorithm == terms.AlgorithmPaths && len(groups) > 0 {
			groups[0] = append(groups[0], plan)
			continue
		}
		groups, of = append(groups, []*formats.Plan{plan}), append(of, q)
	}
	for i, plans := range groups {
		problem, err := of[i].problem(lowest * rate)
		if err != nil {
			return best, err
		}
		plan, err := graph.SizeBySimulation(problem, plans, algorithm == terms.AlgorithmPaths, attained, func(plan *formats.Plan, hint bool) (float64, error) {
			if hint {
				f, err := constant(ctx, plan, rate, 1, 20*time.Second)
				if err != nil {
					return 0, err
				}
				return float64(f.Good) / float64(f.Requests), nil
			}
			out, err := shown(ctx, plan, rate)
			return float64(out.Good) / float64(out.Requests), err
		})
		if err != nil {
			return best, err
		}
		if plan == nil || plan.Objective.Value >= best.Value {
			continue
		}
		if best, err = shown(ctx, plan, rate); err != nil {
			return best, err
		}
	}
	if math.IsInf(best.Value, 1) {
		return best, errors.New("no plan attains it")
	}
	return best, nil
}

// shown returns the results of two minutes of a plan, with the same arrivals for every plan.
func shown(ctx context.Context, plan *formats.Plan, rate float64) (outcome, error) {
	out := outcome{Value: plan.Objective.Value}
	for seed := range uint64(2) {
		f, err := constant(ctx, plan, rate, seed+1, time.Minute)
		if err != nil {
			return out, err
		}
		out.Requests, out.Good = out.Requests+f.Requests, out.Good+f.Good
	}
	return out, nil
}

// constant runs a plan for a while at a constant rate.
func constant(ctx context.Context, plan *formats.Plan, rate float64, seed uint64, length time.Duration) (*sim.FlowResult, error) {
	t, err := policies.Compile(plan)
	if err != nil {
		return nil, err
	}
	pol, err := policies.New(plan.Policy, t)
	if err != nil {
		return nil, err
	}
	res, err := sim.Run(ctx, sim.Config{Tables: t, Policy: pol, Source: newPoisson(slices.Repeat([]float64{rate}, int(length/time.Second)), seed), Control: policies.NewControl(t), NoReport: true, Duration: length})
	if err != nil {
		return nil, err
	}
	return res.Flow, nil
}

// siblings are variants of a module with their accuracy as a share of the family's
// best: detectors as measured with their latencies (Proteus), classifiers of the
// same family there.
var siblings = map[string][]formats.Variant{
	"yolo": {{Model: "proteus/yolov5s", Accuracy: .895464}, {Model: "proteus/yolov5l", Accuracy: .966469}, {Model: "proteus/yolov5x", Accuracy: 1}},
	"eb":   {{Model: "loki/eb0", Accuracy: .914591}, {Model: "loki/eb1", Accuracy: .938316}, {Model: "loki/eb3", Accuracy: .967972}, {Model: "loki/eb5", Accuracy: .991696}},
}

// carried returns the rate that 64 devices carry of a pipeline whose detectors and classifiers
// have variants, or only the most accurate of each.
func (b *bench) carried(ctx context.Context, p *pipeline, floor float64, with bool) (outcome, error) {
	in := planner.Inputs{Profile: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "gpu"}}},
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "gpu", Count: 64}}}}
	best := 1.
	app := formats.Application{Name: p.name, SLO: document.SLO{Duration: p.slo}}
	for i := range p.stages {
		s := &p.stages[i]
		m := formats.Module{Name: s.name, Predecessors: s.after}
		list := []formats.Variant{{Model: s.profile, Accuracy: 1}}
		switch {
		case strings.Contains(s.profile, "yolo"):
			list = siblings["yolo"]
		case strings.Contains(s.profile, "/eb"):
			list = siblings["eb"]
		}
		top := list[len(list)-1]
		if best *= top.Accuracy; !with {
			list = []formats.Variant{top}
		}
		for _, v := range list {
			name := s.name + "-" + v.Model
			m.Variants = append(m.Variants, formats.Variant{Model: name, Accuracy: v.Accuracy})
			in.Profile.Models = append(in.Profile.Models, measuredModel(name, b.from.times(v.Model)))
		}
		app.Modules = append(app.Modules, m)
	}
	app.Accuracy = floor * best
	in.Workload = &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{app}}
	plan, err := solved(ctx, in, map[string]any{"gap": .001, "max-batch": 32})
	if err != nil {
		return outcome{}, err
	}
	return outcome{Value: plan.Objective.Value}, nil
}

// devices prints the fewest devices of every algorithm and adds the figures: the
// method as the planner sizes it, over the best split of the deadline, as it plans and
// sized in the same way.
func devices(s *sheet, t io.Writer, value func(name string) (float64, float64)) {
	columns := slices.Clone(algorithms)
	for _, a := range algorithms {
		if name := sizedToo[a]; name != "" {
			columns = append(columns, name)
		}
	}
	fmt.Fprintf(t, "\nplans: the fewest devices that attain 99 %% in the simulator (attained)\npipeline-workers' rate\t%s\n", strings.Join(columns, "\t"))
	n, ratios := 0, map[bool][2]float64{} // by whether splits are sized: the largest, sum of logarithms
	for _, name := range s.cases("plans") {
		at, ok := strings.CutSuffix(name, "/"+searched)
		if !ok {
			continue
		}
		best := map[bool]float64{false: math.Inf(1), true: math.Inf(1)}
		fmt.Fprintf(t, "%s", at)
		for _, a := range columns {
			devices, share := value(at + "/" + a)
			if !strings.HasPrefix(a, "paths") && devices > 0 {
				sized := strings.HasSuffix(a, "-sized")
				best[sized] = min(best[sized], devices)
			}
			fmt.Fprintf(t, "\t%.0f (%.4f)", devices, share)
		}
		fmt.Fprintln(t)
		ours, _ := value(name)
		n++
		for sized, b := range best {
			r := ratios[sized]
			ratios[sized] = [2]float64{max(r[0], ours/b), r[1] + math.Log(ours/b)}
		}
	}
	if n == 0 {
		return
	}
	for _, sized := range []bool{false, true} {
		of := map[bool]string{false: "the best split of the SLO", true: "the best split of the SLO sized likewise"}[sized]
		add := func(what string, x float64) {
			s.add(figures.Figure{Claim: fmt.Sprintf("devices for 99 %% in the simulator, sized by simulation, over %s, %s of %d cases", of, what, n), Source: "Nexus, InferLine", Asked: "<= 1", Measured: x, Unit: "ratio", Holds: figures.If(x <= 1+1e-9)})
		}
		add("worst", ratios[sized][0])
		add("geometric mean", math.Exp(ratios[sized][1]/float64(n)))
	}
}

// plans prints what was planned and adds the figures.
func (s *sheet) plans(w io.Writer) {
	if s.of("plans"); s.part == "" {
		return
	}
	value := func(name string) (float64, float64) {
		list := s.cellsOf(name, "feas")
		if len(list) == 0 {
			return 0, 0
		}
		return list[0].Value, float64(list[0].Good) / float64(max(1, list[0].Requests))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	devices(s, t, value)
	fmt.Fprintf(t, "\nvariants: requests per second of 64 devices, with variants over without, by floor of accuracy\n")
	least, gain, sum := math.Inf(1), 0., 0
	for _, name := range s.cases("variants") {
		at, ok := strings.CutSuffix(name, "/true")
		if !ok {
			continue
		}
		with, _ := value(name)
		without, _ := value(at + "/false")
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.3f\n", at, with, without, with/without)
		least, gain, sum = min(least, with/without), gain+math.Log(with/without), sum+1
	}
	if sum > 0 {
		s.add(figures.Figure{Claim: fmt.Sprintf("what 64 devices carry with variants over without, least of %d", sum), Source: "Loki, JigsawServe", Asked: ">= 1", Measured: least, Unit: "ratio", Holds: figures.If(least >= 1-1e-3)})
		s.add(figures.Figure{Claim: fmt.Sprintf("what 64 devices carry with variants over without, geometric mean of %d", sum), Source: "Loki, JigsawServe", Asked: figures.AskedShown, Measured: math.Exp(gain / float64(sum)), Unit: "ratio"})
	}
}
