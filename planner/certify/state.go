package certify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

const proofGap = 1e-6 // relative gap up to which a value counts as equal to its bound

// StateValue notes in a plan whose rates passed the test that simulation decided its value, and sets
// the bound of all plans that hold. bound is NaN if it is unknown. A bound that is worse than the
// value is left out, with a warning. planSet says for which plans the bound holds; if empty, for
// all. gap is the relative gap that was asked.
func StateValue(res *kind.Result, sense milp.Sense, bound float64, planSet string, gap float64) {
	plan := res.Plan
	if c := plan.Certificate; c == nil || c.LoadFactor < 1 {
		return
	}
	o := &plan.Objective
	o.Basis = formats.BasisSimulation
	o.Bound, o.Gap, o.BoundAmong = nil, nil, ""
	if math.IsNaN(bound) {
		return
	}

	// A value beyond the bound refutes the bound, unless it is rounding.
	if sense == milp.Maximize && o.Value > bound || sense == milp.Minimize && o.Value < bound {
		if math.Abs(o.Value-bound) > proofGap*math.Abs(bound) {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation confirms %s, which is better than %s, the bound of all plans by the fluid program: the bound is left out",
				kind.FormatNumber(o.Value), kind.FormatNumber(bound)))
			return
		}
		bound = o.Value // a difference by rounding
	}
	reachedGap := milp.RelativeGap(sense, o.Value, bound)
	o.Bound, o.Gap, o.BoundAmong = &bound, &reachedGap, planSet

	// Say what stopped the search, by the gap that is left.
	stopReason := milp.StoppedByWork
	switch {
	case reachedGap <= proofGap:
		stopReason = milp.StoppedByProof
	case reachedGap <= gap:
		stopReason = milp.StoppedByGap
	}
	plan.StoppedBy = string(stopReason)
	res.StoppedBy, res.Status = plan.StoppedBy, kind.StatusOf(stopReason)
}
