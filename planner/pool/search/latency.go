package search

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// latencySlack bounds the part of the objective that reduceLatency may give up, whatever gap was asked for.
const latencySlack = 1e-2

// reduceLatency looks, if all pools are time-shared, for the plan of least latency among those within the gap
// that the user accepts. If models take turns, a long batch costs every model waiting time that the program does
// not see: a last per cent of capacity is not worth twice the latency. On exclusive pools whole devices decide,
// and the plan stays as it is.
func reduceLatency(ctx context.Context, search *planSearch) error {
	slack := min(search.options.Gap, latencySlack)
	if slack <= 0 || ctx.Err() != nil || slices.ContainsFunc(search.problem.Pools, func(p stages.Pool) bool { return !p.TimeShared }) {
		return nil
	}
	// The least throughput that a plan within the gap may have, in units. Nearly all of the slack counts: the rest is for
	// rounding. If the search did not find a plan that good, there is no slack to give up.
	minValue := search.incumbent.ProvenBound() * (1 - 0.999*slack)
	if minValue > search.incumbent.Value() {
		return nil
	}

	// The first program finds the rates of least mean latency that reach minValue, and with them the templates to use. The
	// second one maximises the throughput of these, which may be above minValue. On time-shared pools rates take parts of the
	// devices' time: no replicas are counted, and all their numbers stay 0.
	templates, stats, err := relaxation.LeastLatencyTemplates(ctx, search.solver, search.choice, minValue)
	if templates == nil || err != nil {
		return err
	}
	solved, err := relaxation.Solve(ctx, search.catalogue, search.solver, nil, templates)
	if err != nil {
		return fmt.Errorf("solving for the rates of the least latency: %w", err)
	}
	pipelines := make([]placement.PlanPipeline, len(solved.UsedTemplates))
	for i, ti := range solved.UsedTemplates {
		t := &search.catalogue.Templates[ti]
		pipelines[i] = placement.PlanPipeline{Template: ti, Model: t.Model, RPS: solved.UsedRates[i] * search.catalogue.Units.ModelRPS[t.Model], Replicas: make([]int, len(t.Stages))}
	}
	plan := placement.Recompute(search.catalogue, pipelines)
	isGoodEnough := plan != nil && plan.Value >= search.catalogue.UnitsToRate(minValue)*(1-1e-9) // in requests/s per weight
	if isGoodEnough && meanLatency(search, plan) < meanLatency(search, search.incumbent.Plan) {
		search.incumbent.Plan = plan
		if search.incumbent.Gap() > incumbent.ProvenGap { // if the plan before was proven to be optimal, this one is not
			search.stoppedBy = milp.StoppedByGap
		}
	}
	search.recordPhase("least latency", len(search.choice.AllowedTemplates), stats)
	return nil
}

// meanLatency returns the mean latency of a plan's requests, in seconds, weighted by rate. If no request is
// served, it is infinite.
func meanLatency(search *planSearch, plan *placement.Plan) float64 {
	weightedLatency, rps := 0.0, 0.0
	for _, pipeline := range plan.Pipelines {
		weightedLatency += pipeline.RPS * search.catalogue.Templates[pipeline.Template].Latency.Seconds()
		rps += pipeline.RPS
	}
	if rps == 0 {
		return math.Inf(1)
	}
	return weightedLatency / rps
}

// shortenPipelines replaces, on exclusive pools, pipelines of the plan by others of less latency on the same
// kinds that carry the same rate, if idle devices allow it: mostly whole devices in place of shares. These serve
// no more requests, but leave each batch more of its SLO to wait in. The pipelines of the highest rates choose
// first. No rate falls, so the objective and its proof stay. A plan that continues a running one keeps its
// pipelines.
func shortenPipelines(ctx context.Context, search *planSearch) {
	if search.replan != nil {
		return
	}

	// The templates of each model by rising latency, and the pipelines by falling rate.
	templates := search.catalogue.Templates
	byModel := make([][]int, len(search.problem.Models))
	for _, ti := range search.choice.AllowedTemplates {
		byModel[templates[ti].Model] = append(byModel[templates[ti].Model], ti)
	}
	for _, byLatency := range byModel {
		slices.SortStableFunc(byLatency, func(a, b int) int { return cmp.Compare(templates[a].Latency, templates[b].Latency) })
	}
	pipelines := search.incumbent.Plan.Pipelines
	byRate := lists.Indexes(len(pipelines))
	slices.SortStableFunc(byRate, func(a, b int) int { return cmp.Compare(pipelines[b].RPS, pipelines[a].RPS) })

	// Replace one after another, as far as devices are idle.
	for _, ci := range byRate {
		if ctx.Err() != nil {
			return
		}
		current := &templates[search.incumbent.Plan.Pipelines[ci].Template]
		if !placement.UsesTimeShared(search.catalogue, current) {
			shortenPipeline(search, ci, current, byModel[current.Model])
		}
	}
}

// shortenPipeline replaces pipeline ci of the best plan, which has the template current, by the first template
// of less latency, on the same kinds and at the same batch size, with which no model's rate falls and all fits
// the devices. byLatency holds the templates of its model by rising latency.
func shortenPipeline(search *planSearch, ci int, current *stages.Template, byLatency []int) {
	// The plan with the replacement must have all pipelines, no lower objective and rates, and a place for each replica.
	for _, ti := range byLatency {
		t := &search.catalogue.Templates[ti]
		if t.Latency >= current.Latency {
			return
		}
		if t.Batch != current.Batch || !slices.EqualFunc(t.Stages, current.Stages, func(a, b stages.Stage) bool { return a.Pool == b.Pool }) {
			continue
		}
		pipelines := slices.Clone(search.incumbent.Plan.Pipelines)
		pipelines[ci] = placement.PipelineFor(t, ti, pipelines[ci].RPS)
		plan := placement.Recompute(search.catalogue, pipelines)
		if plan == nil || len(plan.Pipelines) < len(pipelines) || plan.Value < search.incumbent.Plan.Value || lowersAnyRate(search, plan) {
			continue
		}
		if placement.UnpackablePool(search.catalogue, plan) < 0 {
			search.incumbent.Plan = plan
			return
		}
	}
}

// lowersAnyRate reports whether a plan gives some model a lower rate than the best plan does, up to rounding.
func lowersAnyRate(search *planSearch, plan *placement.Plan) bool {
	return lists.Contains(len(plan.ModelRPS), func(d int) bool { return plan.ModelRPS[d] < search.incumbent.Plan.ModelRPS[d]*(1-1e-12) })
}
