package check

import (
	"context"
	"fmt"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
)

// simulateUntested makes the rates of the promised plan and of the plan under check comparable. A plan whose rates simulation tested states
// what it holds; one that was not tested states what its devices carry without queueing, which is more. If only one of the two was tested,
// simulateUntested simulates the other, and replaces it, in the input, by a copy that promises the part of its rates that holds. If no
// part holds, the plan stays as it is. It returns notes about that.
func simulateUntested(ctx context.Context, in *GateInput) (notes []string, err error) {
	pair := []struct {
		name        string
		plan, other **formats.Plan // fields of in
	}{{"the plan promised before", &in.Promised, &in.Plan}, {"the plan under check", &in.Plan, &in.Promised}}
	for _, p := range pair {
		// Only plans for throughput, of a kind whose promise can be scaled, may have tested rates.
		canBeTested := methodOf(*p.plan).ScalePromise != nil && (*p.plan).Objective.Name == "throughput"
		if !canBeTested || isTested(*p.plan) || !isTested(*p.other) {
			continue
		}
		counterpart, part, err := counterpartOf(ctx, *p.plan, in.Today.WorkloadDir)
		if err != nil {
			return nil, fmt.Errorf("simulating what %s holds: %w", p.name, err)
		}
		if part == 0 {
			notes = append(notes, p.name+" states what its devices carry without queueing, and simulation shows no part of it that holds: its rates are compared as they are")
			continue
		}
		notes = append(notes, fmt.Sprintf("%s states what its devices carry without queueing: compared is what simulation shows it to hold, %.3g of that", p.name, part))
		*p.plan = counterpart
	}
	return notes, nil
}

// counterpartOf returns a copy of a plan that promises the part of its rates that simulation shows it to hold, and that part, from 0 to
// 1. If no part of them holds, it returns nil and 0. workloadDir is the folder in which the files of the workload are.
func counterpartOf(ctx context.Context, plan *formats.Plan, workloadDir string) (counterpart *formats.Plan, part float64, err error) {
	part, err = certify.SustainedPart(ctx, plan, kind.TestSettings{Seed: plan.Seed, TraceDir: workloadDir})
	if err != nil || part == 0 {
		return nil, 0, err
	}
	data, err := document.Marshal(plan)
	if err != nil {
		return nil, 0, err
	}
	if counterpart, err = formats.DecodePlan(data, "plan"); err != nil {
		return nil, 0, err
	}
	methodOf(plan).ScalePromise(counterpart, part)
	return counterpart, part, nil
}

// isTested reports whether simulation decided the rates of a plan. Only such a plan states, as Fluid, what its devices carry without
// queueing beside its objective.
func isTested(p *formats.Plan) bool { return p.Objective.Fluid != nil }
