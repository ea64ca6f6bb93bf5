package flow

import (
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/policy/flow"
)

// Sized changes how many devices a plan has until its attainment is what is asked, and
// no device can be spared. attained simulates: it must use the same arrivals for every
// plan, so that plans differ by their devices alone. Batches stay, and so do the kinds of
// devices that a module is on. It is nil where there are too few of them.
//
// A device joins where it helps most (as InferLine's planner does, SoCC '20, section
// 5.2). Then devices leave, the dearest first. Capacities stay above the rates, so
// that the bound of the program holds for the result.
func Sized(plan *formats.Plan, asked float64, attained func(*formats.Plan) (float64, error)) (*formats.Plan, error) {
	has, err := attained(plan)
	if err != nil {
		return nil, err
	}
	for has < asked {
		next, most := (*formats.Plan)(nil), math.Inf(-1)
		for _, other := range resized(plan, 1) {
			x, err := attained(other)
			if err != nil {
				return nil, err
			}
			if x > most {
				next, most = other, x
			}
		}
		if next == nil {
			return nil, nil
		}
		plan, has = next, most
	}
	for {
		next := (*formats.Plan)(nil)
		for _, other := range resized(plan, -1) {
			x, err := attained(other)
			if err != nil {
				return nil, err
			}
			if x >= asked {
				next = other
				break
			}
		}
		if next == nil {
			return plan, nil
		}
		plan = next
	}
}

// resized are the plans with a device more, or with one less, that keep the pools and
// carry the rates, by falling price of that device.
func resized(plan *formats.Plan, by int) []*formats.Plan {
	type change struct {
		plan  *formats.Plan
		price float64
	}
	var out []change
	need := needed(plan)
	for u := range plan.Deployment {
		for k := range plan.Deployment[u].Pipelines {
			other := changed(plan, u, k, by)
			carried := 0.0
			for _, l := range other.Deployment[u].Pipelines {
				carried += l.RPS
			}
			if carried >= need[plan.Deployment[u].Model]*(1-1e-9) && packed(other) {
				out = append(out, change{other, price(plan, plan.Deployment[u].Pipelines[k].Stages[0].Device)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b change) int {
		switch {
		case a.price > b.price:
			return -1
		case a.price < b.price:
			return 1
		}
		return 0
	})
	var list []*formats.Plan
	for _, c := range out {
		list = append(list, c.plan)
	}
	return list
}

// needed is the rate of every model at the planned rates.
func needed(plan *formats.Plan) map[string]float64 {
	out := map[string]float64{}
	apps := formats.FlowOf(plan).Applications
	for i := range apps {
		g, err := flow.Graph(apps[i].Modules, "")
		if err != nil {
			continue // a plan that was made has graphs
		}
		for k := range g.Nodes {
			out[apps[i].Modules[k].Model] += apps[i].RPS * g.Nodes[k].Chance
		}
	}
	return out
}

// changed is a copy of a plan with so many devices more for a pipeline of a model.
func changed(plan *formats.Plan, u, k, by int) *formats.Plan {
	out := *plan
	out.Deployment = slices.Clone(plan.Deployment)
	for i := range out.Deployment {
		d := &out.Deployment[i]
		d.Pipelines = slices.Clone(d.Pipelines)
		for j := range d.Pipelines {
			d.Pipelines[j].Stages = slices.Clone(d.Pipelines[j].Stages)
			s := &d.Pipelines[j].Stages[0]
			s.Placement = slices.Clone(s.Placement)
		}
	}
	d := &out.Deployment[u]
	l := &d.Pipelines[k]
	s := &l.Stages[0]
	had := s.GPUs
	s.GPUs += float64(by)
	s.Replicas += by * s.Share
	s.RPS *= s.GPUs / had
	l.RPS = s.RPS
	if s.Replicas == 0 {
		d.Pipelines = slices.Delete(d.Pipelines, k, k+1)
	}
	out.Objective.Value += float64(by) * price(plan, plan.Deployment[u].Pipelines[k].Stages[0].Device)
	if b := out.Objective.Bound; b != nil {
		gap := math.Abs(out.Objective.Value-*b) / math.Max(math.Abs(out.Objective.Value), 1e-12)
		out.Objective.Gap = &gap
	}
	return &out
}

// packed places every pipeline on the next free devices of its pool. It tells whether
// there are enough.
func packed(plan *formats.Plan) bool {
	first := map[string]int{}
	for i := range plan.Deployment {
		for j := range plan.Deployment[i].Pipelines {
			s := &plan.Deployment[i].Pipelines[j].Stages[0]
			s.Placement = []formats.Placement{{First: first[s.Device], PerDevice: s.Share, Replicas: s.Replicas}}
			first[s.Device] += s.Replicas / s.Share
		}
	}
	return !slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return first[p.Device] > p.Count })
}

// price is what a device costs by the objective.
func price(plan *formats.Plan, device string) float64 {
	for _, p := range plan.Pools {
		if p.Device == device {
			return map[string]float64{"cost": p.USDPerHour, "power": p.Watts, "gpus": 1}[plan.Objective.Name]
		}
	}
	return 0
}
