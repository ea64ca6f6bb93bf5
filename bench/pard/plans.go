package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/flow/graph"
	"inferplan/planner/flow/terms"
	"inferplan/sim"
)

// The part plans: the fewest devices that attain 99 % in the simulator, by the method without a fixed split of the SLO and by planners that split it.
//
// A planner alone is given what it takes to attain that: margins, and rates that grow until its plan does. "sized" is the planner's own search with --margin
// auto: devices join and leave one by one, and batches change, by simulation.
const (
	attained   = .99
	lowestRate = .94 // that plans are made for first, over that which they are to carry
	rateStep   = .02
)

// margins of the SLO that a plan keeps back, of which the best counts.
var margins = []float64{.1, .2, .3}

// sizing is a column of the table: an algorithm, whose plans may be sized by simulation. With a split the batches stay then, without one they are searched
// as well.
type sizing struct {
	name, algorithm string
	sized           bool
}

// sizings begins with ours.
var sizings = []sizing{
	{"searched", "paths", true}, {"paths", "paths", false}, {"even", "even", false}, {"proportional", "proportional", false},
	{"nexus", "nexus", false}, {"nexus sized", "nexus", true}, {"inferline", "inferline", false}, {"inferline sized", "inferline", true},
}

// measurePlans holds the sized plans of the method against splits of the SLO, as they are planned and sized in the same way.
func (b *bench) measurePlans(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"pipeline, rate of"}
	for _, s := range sizings {
		t.Columns = append(t.Columns, s.name)
	}
	ratios := map[bool][]float64{} // ours over the best split, by whether that is sized
	for _, p := range b.pipes {
		for _, workers := range []float64{16, 32} {
			row, best := []any{fmt.Sprintf("%s %.0f", p.name, workers)}, map[bool]float64{false: math.Inf(1), true: math.Inf(1)}
			ours := 0.
			for _, s := range sizings {
				find := p.fewest
				if s.sized {
					find = p.sized
				}
				out, err := instrument.Measured(r, fmt.Sprintf("plans/%s-%.0f/%s", p.name, workers, s.name), func() (outcome, error) {
					return find(r.Ctx, s.algorithm, p.capacity(workers))
				})
				if err != nil {
					return err
				}
				row = append(row, fmt.Sprintf("%.0f (%.4f)", out.Objective, 1-out.dropRate()))
				switch {
				case s.algorithm != "paths":
					best[s.sized] = min(best[s.sized], out.Objective)
				case s.sized:
					ours = out.Objective
				}
			}
			t.Add(row...)
			ratios[false], ratios[true] = append(ratios[false], ours/best[false]), append(ratios[true], ours/best[true])
		}
	}
	for _, sized := range []bool{false, true} {
		of := map[bool]string{false: "the best split of the SLO", true: "the best split of the SLO sized likewise"}[sized]
		claim := func(what string) string {
			return fmt.Sprintf("devices for 99 %% in the simulator, sized by simulation, over %s, %s of %d cases", of, what, len(ratios[sized]))
		}
		r.AtMost(claim("worst"), "Nexus, InferLine", 1, "ratio", slices.Max(ratios[sized]))
		r.AtMost(claim("geometric mean"), "Nexus, InferLine", 1, "ratio", geometricMean(ratios[sized]))
	}
	return nil
}

// geometricMean returns the geometric mean of ratios.
func geometricMean(ratios []float64) float64 {
	sum := 0.
	for _, x := range ratios {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// errNoPlan is of an algorithm of which no plan attains what is asked.
var errNoPlan = errors.New("no plan attains it")

// fewest finds the fewest devices of an algorithm that attain what is asked at a rate, with any of the margins.
func (p *pipeline) fewest(ctx context.Context, algorithm string, rate float64) (outcome, error) {
	best := outcome{Objective: math.Inf(1)}
	for _, margin := range margins {
		if err := p.grow(ctx, algorithm, margin, rate, &best); err != nil && !isInfeasible(err) {
			return best, err
		}
	}
	if math.IsInf(best.Objective, 1) {
		return best, errNoPlan
	}
	return best, nil
}

func isInfeasible(err error) bool {
	_, infeasible := errors.AsType[*planner.InfeasibleError](err)
	return infeasible
}

// grow has the planned rate grow until simulation shows what is asked, or the devices are as many as those of the best.
func (p *pipeline) grow(ctx context.Context, algorithm string, margin, rate float64, best *outcome) error {
	split, err := p.split(algorithm, margin)
	if err != nil {
		return err
	}
	var last []int // batches and replicas of the plan before
	for step := range 60 {
		plan, err := split.solve(ctx, margin, rate*(lowestRate+rateStep*float64(step)))
		if err != nil {
			return err
		}
		if plan.Objective.Value >= best.Objective {
			return nil
		}
		var devices []int
		for i := range plan.Deployment {
			line := &plan.Deployment[i].Pipelines[0]
			devices = append(devices, line.Batch, line.Stages[0].Replicas)
		}
		if slices.Equal(devices, last) {
			continue
		}
		last = devices
		out, err := twoMinutes(ctx, plan, rate)
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

// sized finds the fewest devices by the search of the planner with simulation as the judge. It begins with plans for the lowest rate that any plan is made for:
// what attains enough is for simulation to say. Planners that split the SLO keep the batches of a margin, and the best of the margins counts.
func (p *pipeline) sized(ctx context.Context, algorithm string, rate float64) (outcome, error) {
	type start struct {
		pipe  *pipeline
		plans []*formats.Plan
	}
	var starts []start
	for _, margin := range margins {
		split, err := p.split(algorithm, margin)
		var plan *formats.Plan
		if err == nil {
			plan, err = split.solve(ctx, margin, lowestRate*rate)
		}
		switch {
		case err != nil && !isInfeasible(err):
			return outcome{}, err
		case err != nil:
		case algorithm == terms.AlgorithmPaths && len(starts) > 0:
			starts[0].plans = append(starts[0].plans, plan)
		default:
			starts = append(starts, start{split, []*formats.Plan{plan}})
		}
	}
	best := outcome{Objective: math.Inf(1)}
	for _, s := range starts {
		problem, err := s.pipe.problem(lowestRate * rate)
		if err != nil {
			return best, err
		}
		sizing, err := graph.NewSizing(problem, s.plans, algorithm == terms.AlgorithmPaths, func(plan *formats.Plan, hint bool) (float64, error) {
			out, err := outcome{}, error(nil)
			if hint {
				out, err = constantRate(ctx, plan, rate, 1, 20*time.Second)
			} else {
				out, err = twoMinutes(ctx, plan, rate)
			}
			return float64(out.Good) / float64(out.Requests), err
		})
		if err != nil {
			return best, err
		}
		plan, err := sizing.CheapestPlan(attained)
		if err != nil {
			return best, err
		}
		if plan == nil || plan.Objective.Value >= best.Objective {
			continue
		}
		if best, err = twoMinutes(ctx, plan, rate); err != nil {
			return best, err
		}
	}
	if math.IsInf(best.Objective, 1) {
		return best, errNoPlan
	}
	return best, nil
}

// twoMinutes returns the results of two minutes of a plan, with the same arrivals for every plan.
func twoMinutes(ctx context.Context, plan *formats.Plan, rate float64) (outcome, error) {
	sum := outcome{Objective: plan.Objective.Value}
	for seed := range uint64(2) {
		out, err := constantRate(ctx, plan, rate, seed+1, time.Minute)
		if err != nil {
			return sum, err
		}
		sum.Requests, sum.Good = sum.Requests+out.Requests, sum.Good+out.Good
	}
	return sum, nil
}

// constantRate runs a plan for a while at a constant rate.
func constantRate(ctx context.Context, plan *formats.Plan, rate float64, seed uint64, length time.Duration) (outcome, error) {
	flow, err := simulate(ctx, plan, newPoisson(slices.Repeat([]float64{rate}, int(length/time.Second)), seed), func(cfg *sim.Config) error {
		cfg.Duration = length
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	return outcome{Requests: flow.Requests, Good: flow.Good}, nil
}

// siblings are variants of a module with their accuracy as a share of the family's best: detectors as measured with their latencies (Proteus), classifiers of
// the same family there.
var siblings = map[string][]formats.Variant{
	"yolo": {{Model: "proteus/yolov5s", Accuracy: .895464}, {Model: "proteus/yolov5l", Accuracy: .966469}, {Model: "proteus/yolov5x", Accuracy: 1}},
	"eb":   {{Model: "loki/eb0", Accuracy: .914591}, {Model: "loki/eb1", Accuracy: .938316}, {Model: "loki/eb3", Accuracy: .967972}, {Model: "loki/eb5", Accuracy: .991696}},
}

// measureVariants measures what 64 devices carry with variants of modules, at floors of accuracy.
func (b *bench) measureVariants(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"pipeline, floor", "with variants", "without", "times"}
	var ratios []float64
	for _, p := range b.pipes {
		for _, floor := range []float64{.99, .95, .9, .85, .8} {
			var rates [2]float64
			for i := range rates {
				var err error
				rates[i], err = instrument.Measured(r, fmt.Sprintf("variants/%s-%.2f/%d", p.name, floor, i), func() (float64, error) { return b.carriedRate(r.Ctx, p, floor, i == 0) })
				if err != nil {
					return err
				}
			}
			ratios = append(ratios, rates[0]/rates[1])
			t.Add(fmt.Sprintf("%s %.2f", p.name, floor), fmt.Sprintf("%.0f", rates[0]), fmt.Sprintf("%.0f", rates[1]), fmt.Sprintf("%.3f", rates[0]/rates[1]))
		}
	}
	f := r.AtLeast(fmt.Sprintf("what 64 devices carry with variants over without, least of %d", len(ratios)), "Loki, JigsawServe", 1, "ratio", slices.Min(ratios))
	f.Holds = figures.If(f.Measured >= 1-variantGap)
	return nil
}

// variantGap says how far plans may be from the best.
const variantGap = 1e-3

// carriedRate returns the rate that 64 devices carry of a pipeline whose detectors and classifiers have variants, or only the most accurate of each.
func (b *bench) carriedRate(ctx context.Context, p *pipeline, floor float64, variants bool) (float64, error) {
	best := 1.
	app := formats.Application{Name: p.name, SLO: document.SLO{Duration: p.slo}}
	var models []formats.ProfileModel
	for i := range p.stages {
		s := &p.stages[i]
		list := []formats.Variant{{Model: s.profile, Accuracy: 1}}
		switch {
		case strings.Contains(s.profile, "yolo"):
			list = siblings["yolo"]
		case strings.Contains(s.profile, "/eb"):
			list = siblings["eb"]
		}
		mostAccurate := list[len(list)-1]
		if best *= mostAccurate.Accuracy; !variants {
			list = []formats.Variant{mostAccurate}
		}
		module := formats.Module{Name: s.name, Predecessors: s.after}
		for _, v := range list {
			name := s.name + "-" + v.Model
			module.Variants = append(module.Variants, formats.Variant{Model: name, Accuracy: v.Accuracy})
			models = append(models, measuredModel(name, b.times[v.Model]))
		}
		app.Modules = append(app.Modules, module)
	}
	app.Accuracy = floor * best
	plan, err := solved(ctx, documents(app, 64, models...), map[string]any{"gap": variantGap, "max-batch": 32})
	if err != nil {
		return 0, err
	}
	return plan.Objective.Value, nil
}
