package certify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

const proved = 1e-6 // relative gap at which a value is the bound

// State writes into a plan whose rates passed the test that simulation decided its value, and the
// bound of every plan that holds; NaN: none is known. A bound that the value refutes is left out, with a
// warning. among says which plans these are; empty:
// all. gap is the relative gap that was asked.
func State(res *kind.Result, sense milp.Sense, bound float64, among string, gap float64) {
	plan := res.Plan
	if c := plan.Certified; c == nil || c.LoadFactor < 1 {
		return
	}
	o := &plan.Objective
	o.Basis = formats.BasisSimulation
	o.Bound, o.Gap, o.BoundAmong = nil, nil, ""
	if math.IsNaN(bound) {
		return
	}
	if sense == milp.Maximize && o.Value > bound || sense == milp.Minimize && o.Value < bound {
		if math.Abs(o.Value-bound) > proved*math.Abs(bound) {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation confirms %s, which is better than %s, the bound of all plans by the fluid program: the bound is left out",
				kind.Number(o.Value), kind.Number(bound)))
			return
		}
		bound = o.Value // rounding
	}
	distance := milp.RelativeGap(sense, o.Value, bound)
	o.Bound, o.Gap, o.BoundAmong = &bound, &distance, among
	stopped := milp.StoppedByWork
	switch {
	case distance <= proved:
		stopped = milp.StoppedByProof
	case distance <= gap:
		stopped = milp.StoppedByGap
	}
	plan.StoppedBy = string(stopped)
	res.StoppedBy, res.Status = plan.StoppedBy, kind.Status(stopped)
}
