package verify

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

const roundingTolerance = recompute.Rounding

// planChecker checks one plan of pooled pipelines.
type planChecker struct {
	recompute.Checker
	carried *planToday
}

// newChecker returns a checker of a plan of models on pools, without findings.
func newChecker(t *kind.CheckInput) *planChecker {
	return &planChecker{Checker: *recompute.NewChecker(t)}
}

// Check compares a plan of models on pools of devices with today's documents. If it returns no finding, the plan
// still holds and nothing has changed.
func Check(t *kind.CheckInput) []kind.Finding {
	c := newChecker(t)
	c.checkModelNames()
	sound := c.CheckStructure()
	c.CheckPools(false)
	c.CheckRequestCosts()
	if !sound {
		return c.Findings
	}

	// The models, the devices and the objective need what the plan carries today.
	c.carried = c.evaluatePlan()
	for i := range c.Plan.Deployment {
		c.checkModel(i)
	}
	c.checkDevices()
	c.checkObjective()
	return c.Findings
}

// workloadModel returns what the workload asks of a model. If it does not ask for the model, it returns nil.
func (c *planChecker) workloadModel(key formats.ModelClass) *formats.WorkloadModel {
	models := formats.ModelsOf(c.Workload)
	if i := slices.IndexFunc(models, func(m formats.WorkloadModel) bool { return m.Key() == key }); i >= 0 {
		return &models[i]
	}
	return nil
}

// checkModelNames records an error for each model that only one of plan and workload has.
func (c *planChecker) checkModelNames() {
	if len(c.Plan.Deployment) == 0 {
		c.AddError("model", "pool.models", "no model", "at least one", "the plan serves nothing")
	}
	if c.Workload == nil {
		return
	}
	for i := range c.Plan.Deployment {
		key := c.Plan.Deployment[i].Key()
		if c.workloadModel(key) == nil {
			c.AddError("model", fmt.Sprintf("pool.models[%d].model", i), strconv.Quote(key.String()), "a model of the workload", "the workload no longer asks for %s", key)
		}
	}
	for _, m := range formats.ModelsOf(c.Workload) {
		if key := m.Key(); deployedIndex(c.Plan, key) < 0 {
			c.AddError("model", "pool.models", "no "+strconv.Quote(key.String()), "every model of the workload", "the workload asks for %s, the plan does not serve it", key)
		}
	}
}

// deployedIndex returns the index of a model or class in the plan's deployment, or -1.
func deployedIndex(p *formats.Plan, key formats.ModelClass) int {
	return slices.IndexFunc(p.Deployment, func(m formats.Deployed) bool { return m.Key() == key })
}

// checkObjective recomputes the plan's objective, the least rate of a model divided by its weight, and checks that
// it is not above its bound. Other objectives are not checked.
func (c *planChecker) checkObjective() {
	o := &c.Plan.Objective
	if o.Name != "throughput" || len(c.Plan.Deployment) == 0 {
		return
	}
	value := math.Inf(1)
	for i := range c.Plan.Deployment {
		if m := c.Plan.PromiseFor(i); m.Weight > 0 {
			value = min(value, m.RPS/m.Weight)
		}
	}
	if math.Abs(value-o.Value) > roundingTolerance*value {
		c.AddError("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the models' rates do not give this objective")
	}
	if o.Bound != nil && o.Value > *o.Bound*(1+1e-9) {
		c.AddError("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at least %v", o.Value), "the value is above its own bound")
	}
}
