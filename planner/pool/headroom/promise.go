package headroom

import (
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/planner/pool/documents"
)

// lowerPromise lowers the rates that a plan promises: of model i to parts[i] of its rate. The rates of its pipelines, the
// objective, the limits in its units, and the utilisation (the promised part of the rate that replicas carry) follow.
// Replicas and their rates stay. It is called when simulation shows which rates a plan sustains.
func lowerPromise(result *kind.Result, parts []float64) {
	plan := result.Plan
	section := formats.PoolOf(plan)
	if section.Headroom == nil {
		section.Headroom = slices.Repeat([]formats.Headroom{{Margin: plan.Options.Number("margin"), Utilisation: 1}}, len(section.Models))
	}
	oldValue := plan.Objective.Value

	// Lower the rates of pipelines and models.
	for i, part := range parts {
		section.Headroom[i].Utilisation *= part
		section.Models[i].RPS = 0
		for k := range plan.Deployment[i].Pipelines {
			pipeline := &plan.Deployment[i].Pipelines[k]
			lowerRate(plan, pipeline, part)
			section.Models[i].RPS += pipeline.RPS
		}
	}

	// The objective is the least rate per weight. The limits, what more devices would bring, shrink as it does.
	objective := &plan.Objective
	if objective.Name != documents.ObjectiveThroughput {
		return
	}
	for i := range section.Models {
		if weightedRate := section.Models[i].RPS / section.Models[i].Weight; i == 0 || weightedRate < objective.Value {
			objective.Value = weightedRate
		}
	}
	for i := range plan.Limits {
		plan.Limits[i].Value *= objective.Value / oldValue
	}
}

// lowerRate lowers the rate of a pipeline to a part of it. The rate of a stage on a time-shared device follows,
// as it has no replicas of its own that would carry more.
func lowerRate(plan *formats.Plan, pipeline *formats.Pipeline, part float64) {
	pipeline.RPS *= part
	for j := range pipeline.Stages {
		if isTimeShared(plan, pipeline.Stages[j].Device) {
			pipeline.Stages[j].RPS = pipeline.RPS
		}
	}
}

// PromiseShare makes a plan promise a part (at most 1) of the rates of all models that its devices carry without queueing.
// The objective before, which leaves out queueing, is noted as Fluid.
func PromiseShare(plan *formats.Plan, part float64) {
	fluid := plan.Objective.Value
	lowerPromise(&kind.Result{Plan: plan}, slices.Repeat([]float64{part}, len(plan.Deployment)))
	plan.Objective.Fluid = &fluid
}

// isTimeShared reports whether stages take turns on a device kind.
func isTimeShared(plan *formats.Plan, device string) bool {
	for i := range plan.Pools {
		if plan.Pools[i].Device == device {
			return plan.Pools[i].TimeShared()
		}
	}
	return false
}

// writeBounds completes the finished plan, if a test confirmed its rates: it notes that its value rests on simulation,
// as Fluid the least rate per weight that models could have without queueing, and the bound and gap over all plans that
// hold their SLOs. A plan without a certificate, or whose certificate is of a part of its rates only, keeps its objective
// and bound.
func (a *planTuner) writeBounds(res *kind.Result) {
	plan := res.Plan
	objective, section := &plan.Objective, formats.PoolOf(plan)
	if c := plan.Certificate; c == nil || c.LoadFactor < 1 {
		return
	}

	// A model promises its utilisation times the rate that its replicas carry.
	if a.maximises() {
		carriedRPS := math.Inf(1)
		for i := range section.Models {
			utilisation := 1.0
			if section.Headroom != nil {
				utilisation = section.Headroom[i].Utilisation
			}
			carriedRPS = min(carriedRPS, section.Models[i].RPS/utilisation/section.Models[i].Weight)
		}
		objective.Fluid = &carriedRPS
	}
	// planBound may allow for the queueing of random arrivals. A value above it passed the test by luck, and then the bound
	// without queueing, fluidBound, is stated. For a price, of which lower values are better, the two are equal.
	bound := a.planBound
	if objective.Value > bound {
		bound = a.fluidBound
	}
	scope := documents.BoundScope(a.problem.Values, plan.Options.WholeNumber("blocks"), plan.Deployment, plan.Pools)
	certify.StateValue(res, kind.SenseOf(objective.Name), bound, scope, a.problem.Values.Number("gap"))
}
