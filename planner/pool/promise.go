package pool

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
)

// lowerPromise lowers what a plan promises to parts of it, one per model. What its replicas carry stays.
func promise(res *kind.Result, parts []float64) {
	plan := res.Plan
	s := formats.PoolOf(plan)
	if s.Headroom == nil {
		for range s.Models {
			s.Headroom = append(s.Headroom, formats.Headroom{Margin: plan.Options.Number("margin"), Utilisation: 1})
		}
	}
	before := plan.Objective.Value

	// The rates of pipelines and models.
	for i, part := range parts {
		s.Headroom[i].Utilisation *= part
		sum := 0.0
		for k := range plan.Deployment[i].Pipelines {
			l := &plan.Deployment[i].Pipelines[k]
			l.RPS *= part
			for j := range l.Stages {
				if timeShared(plan, l.Stages[j].Device) {
					l.Stages[j].RPS = l.RPS
				}
			}
			sum += l.RPS
		}
		s.Models[i].RPS = sum
	}

	// The objective and the limits.
	o := &plan.Objective
	if o.Name != ObjectiveThroughput {
		return
	}
	for i := range s.Models {
		if per := s.Models[i].RPS / s.Models[i].Weight; i == 0 || per < o.Value {
			o.Value = per
		}
	}
	for i := range plan.Limits {
		plan.Limits[i].Value *= o.Value / before
	}
}

// promiseShare makes a plan promise a part of what its devices carry.
func promisePart(plan *formats.Plan, part float64) {
	fluid := plan.Objective.Value
	promise(&kind.Result{Plan: plan}, slices.Repeat([]float64{part}, len(plan.Deployment)))
	plan.Objective.Fluid = &fluid
}

// isTimeShared reports whether stages take turns on a device kind.
func timeShared(plan *formats.Plan, device string) bool {
	for i := range plan.Pools {
		if plan.Pools[i].Device == device {
			return plan.Pools[i].TimeShared()
		}
	}
	return false
}

// writeBounds writes into the plan what the search knows: that simulation decided its value, what the fluid
// program says its replicas carry, and the bound of all plans that hold.
func (a *tuning) state(res *kind.Result) {
	plan := res.Plan
	o, s := &plan.Objective, formats.PoolOf(plan)
	if c := plan.Certified; c == nil || c.LoadFactor < 1 {
		return
	}
	if a.grows() {
		carried := math.Inf(1)
		for i := range s.Models {
			used := 1.0
			if s.Headroom != nil {
				used = s.Headroom[i].Utilisation
			}
			carried = min(carried, s.Models[i].RPS/used/s.Models[i].Weight)
		}
		o.Fluid = &carried
	}
	choices, bound := choicesOf(a.p.Values), a.bound
	if o.Value > bound { // the test passed by luck; an objective that is minimised has one bound only
		bound = a.fluidBound
	}
	certify.State(res, choices.sense(), bound, among(a.p.Values, plan.Options.Whole("blocks"), plan.Deployment, plan.Pools), choices.Gap)
}

// boundScope says which plans a bound covers, as far as options leave some plans out. blocks is the number of
// blocks that models count as, 0 if it is not limited. The text ends a sentence that begins with "no plan". If
// the bound covers all plans, it is empty.
func among(v document.Values, blocks int, deployment []formats.Deployed, pools []formats.Pool) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }

	// Pipelines: whole models, pairs of devices, few stages.
	if algorithm := v.Word("algorithm"); algorithm == AlgorithmNP {
		add("of whole models")
	} else if algorithm == AlgorithmDARTr {
		add("of pairs of devices")
	} else if most := v.Whole("max-partitions"); slices.ContainsFunc(deployment, func(d formats.Deployed) bool { return d.NumBlocks > most }) {
		add("of at most %d stages", most)
	}
	shared := func(p formats.Pool) bool { return p.NICGbps > 0 && min(p.Count, p.PerNode) > 1 }
	if v.Word("algorithm") == AlgorithmTemplate && v.Whole("max-partitions") > 1 && !v.Flag("uneven-nic") && slices.ContainsFunc(pools, shared) {
		add("with even shares of network cards")
	}

	// Batches, blocks, margin and rounding.
	if n := v.Whole("max-batch"); n > 0 {
		add("with batches up to %d", n)
	}
	if blocks > 0 {
		add("with %d blocks a model", blocks)
	}
	if v.Word("margin") != "auto" {
		add("with margin %.3g", v.Number("margin"))
		if v.Word("gpu-rounding") == "slot" {
			add("with whole devices for every stage")
		}
	}
	return strings.Join(parts, ", ")
}
