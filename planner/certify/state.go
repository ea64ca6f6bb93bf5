package certify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// StateValue completes a plan whose rates passed the simulation test: its value rests on simulation, and its bound, gap
// and stop reason are set. bound limits the objective of every plan that holds or, if planSet is not empty, of the plans
// that this text describes; it is NaN if unknown. A bound that the value refutes is left out, with a warning. gap is the
// relative gap at which the search was allowed to stop.
func StateValue(res *kind.Result, sense milp.Sense, bound float64, planSet string, gap float64) {
	plan := res.Plan
	if c := plan.Certificate; c == nil || c.LoadFactor < 1 {
		return // its full rates did not pass
	}
	o := &plan.Objective
	o.Basis = formats.BasisSimulation
	o.Bound, o.Gap, o.BoundAmong = nil, nil, ""
	if math.IsNaN(bound) {
		return
	}

	// A value beyond the bound refutes the bound, unless it is rounding.
	if sense == milp.Maximize && o.Value > bound || sense == milp.Minimize && o.Value < bound {
		if math.Abs(o.Value-bound) > kind.ProvenGap*math.Abs(bound) {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation confirms %s, which is better than %s, the bound of all plans by the fluid program: the bound is left out",
				kind.FormatNumber(o.Value), kind.FormatNumber(bound)))
			return
		}
		bound = o.Value // a difference by rounding
	}

	// State the bound with the relative gap to it, and the set of plans that it covers (empty for all).
	reachedGap := milp.RelativeGap(sense, o.Value, bound)
	o.Bound, o.Gap, o.BoundAmong = &bound, &reachedGap, planSet

	// Say what stopped the search, by the gap that is left.
	stopReason := kind.StopReason(reachedGap, gap)
	plan.StoppedBy = string(stopReason)
	res.StoppedBy, res.Status = plan.StoppedBy, kind.StatusOf(stopReason)
}
