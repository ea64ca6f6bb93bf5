package main

import (
	"context"
	"fmt"
	"slices"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
	policygear "inferplan/policy/gear"
)

// addAccuracy adds the row of a system on even and on Poisson arrivals, with what was planned if it is a plan. It adds none if there is no
// such system.
func addAccuracy(r *instrument.Run, t *instrument.Table, name string, v *plan) error {
	t.Columns = []string{"workload", "devices", "method, or what is left out", "accuracy, even", "p95 ms", "accuracy, Poisson", "p95 ms, mean (worst)", "planned", "bound"}
	if v == nil {
		return nil
	}
	runs, err := v.runAll(r, append([]stream{even}, fivePoisson...))
	if err != nil {
		return err
	}
	var accuracies, p95s []float64
	for _, run := range runs[1:] {
		accuracies, p95s = append(accuracies, run.Accuracy), append(p95s, ms(run.P95))
	}
	p95, _ := instrument.Mean(p95s)
	stated, bound := "", ""
	if v.Bound > 0 {
		stated, bound = digits(v.Accuracy), digits(v.Bound)
	}
	t.Add(v.f.Name, v.devices, name, digits(runs[0].Accuracy), wholeMS(runs[0].P95), meanOf(accuracies, 4), fmt.Sprintf("%.0f (%s)", p95, wholeMS(pooled(runs[1:]).P95)), stated, bound)
	return nil
}

// methods measures accuracy and p95 by devices.
func methods(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	for _, devices := range studies[f.Name].devices {
		for _, name := range []string{"planner", "planner, all requests", "no cascade", "no switching", "Cascadia-like", "Cascadia-like, re-deployed", "MS+", "DynBa"} {
			v, err := methodsByName[name](r, place{f, devices, f.SLO}, evenAlone)
			if err != nil {
				return err
			}
			if name == "DynBa" && v != nil { // with its model
				name = v.name
			}
			if err := addAccuracy(r, t, name, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// ablations measures what each part of a plan is worth, as figure 12 does.
func ablations(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	for _, devices := range studies[f.Name].ablated {
		p := place{f, devices, f.SLO}
		for _, one := range []struct {
			without string
			build   method
		}{
			{"nothing", methodsByName["planner"]}, {"the min-max load split (even instead)", evenSplit}, {"gears (one, planned for the peak)", oneGear},
			{"cascades", methodsByName["no cascade"]}, {"the exact planner (Algorithm 1 repaired)", alternation},
		} {
			v, err := one.build(r, p, nil)
			if err != nil {
				return err
			}
			if err := addAccuracy(r, t, "without "+one.without, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// evenSplit makes our plan with models that share their work evenly over their devices.
func evenSplit(r *instrument.Run, p place, streams []stream) (*plan, error) {
	v, err := methodsByName["planner"](r, p, streams)
	if err != nil || v == nil {
		return nil, err
	}
	return v.altered(", even split", func(t *policygear.Tables) error {
		t.Gears = slices.Clone(t.Gears)
		for g := range t.Gears {
			stages := slices.Clone(t.Gears[g].Stages)
			for k := range stages {
				replicas := len(stages[k].ReplicaShares)
				stages[k].ReplicaShares = slices.Repeat([]float64{1 / float64(replicas)}, replicas)
			}
			t.Gears[g].Stages = stages
		}
		return nil
	}), nil
}

// oneGear makes our plan with a single range of rates.
func oneGear(r *instrument.Run, p place, _ []stream) (*plan, error) {
	return makePlan(r, p, "one gear", func() (*cascades.Problem, error) { return baseline.Problem(p.f, p.devices, 1, p.slo) }, solve)
}

// alternation makes a plan by Algorithm 1 of the paper.
func alternation(r *instrument.Run, p place, _ []stream) (*plan, error) {
	return makePlan(r, p, "Algorithm 1", p.changed(measuredRates(p.f)), func(ctx context.Context, q *cascades.Problem) (*trials.Plan, error) {
		return baseline.Alternation(ctx, q, planSeed)
	})
}
