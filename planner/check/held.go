package check

import (
	"context"
	"fmt"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
)

// heldRates makes two plans comparable where simulation decided the rates of only one of them: the other is
// replaced by a copy that promises the rates that simulation shows it to hold. It returns a note of each.
func heldRates(ctx context.Context, in *GateInput) (notes []string, err error) {
	pair := []struct {
		name        string
		plan, other **formats.Plan
	}{{"promised before", &in.Against, &in.Plan}, {"under check", &in.Plan, &in.Against}}
	for _, p := range pair {
		m := methodOf(*p.plan)
		if m.Promise == nil || (*p.plan).Objective.Name != "throughput" || tested(*p.plan) || !tested(*p.other) {
			continue
		}
		data, err := formats.Marshal(*p.plan)
		if err != nil {
			return nil, fmt.Errorf("copying the plan %s: %w", p.name, err)
		}
		held, err := formats.DecodePlan(data, "the plan "+p.name)
		if err != nil {
			return nil, fmt.Errorf("copying the plan %s: %w", p.name, err)
		}
		if err := planner.Certify(ctx, held, kind.Asked{Seed: held.Seed, Dir: in.Today.WorkloadDir}); err != nil {
			return nil, fmt.Errorf("what the plan %s holds: %w", p.name, err)
		}
		if held.Certified == nil || held.Certified.LoadFactor == 0 {
			notes = append(notes, fmt.Sprintf("the plan %s states what its devices carry without queueing, and simulation shows no part of it that holds: its rates are compared as they are", p.name))
			continue
		}
		load := held.Certified.LoadFactor
		m.Promise(held, load)
		held.Certified = (*p.plan).Certified // latencies that it never promised are not compared
		notes = append(notes, fmt.Sprintf("the plan %s states what its devices carry without queueing: compared is what simulation shows it to hold, %.3g of that", p.name, load))
		*p.plan = held
	}
	return notes, nil
}

// tested returns whether simulation decided the rates of a plan.
func tested(p *formats.Plan) bool { return p.Objective.Fluid != nil }
