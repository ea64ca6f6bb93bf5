package graph

import (
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/moves"
)

// AttainmentFunc simulates a plan and returns the share of the requests that are in time. The arrivals must
// be the same for every plan, so that plans differ only by their devices and batches. A hint may simulate
// only a part of them.
type AttainmentFunc func(plan *formats.Plan, hint bool) (float64, error)

// Sizing is a search for the cheapest plan that attains a share of requests in time in simulation. What it simulated for one share
// serves the search for the next.
type Sizing struct {
	problem *resolvedProblem
	base    *formats.Plan // has the margin and the waits of all plans that are found
	starts  []*solution
	search  *sizeSearch
}

// NewSizing returns a search that starts from plans for the same workload, the first of which leaves requests the most time (by margin and
// batch-wait). Devices are added and removed, and batch sizes change if batches is true. Plans that move more devices of what runs than p
// allows count as ones that attain nothing. Neither p nor the plans are changed. simulate is asked for hints, too: cheap simulations that
// rank plans.
func NewSizing(p *kind.Problem, plans []*formats.Plan, batches bool, simulate AttainmentFunc) (*Sizing, error) {
	base, q := plans[0], *p
	for _, option := range []string{"margin", "batch-wait"} {
		if err := q.Values.Set(option, base.Options.Number(option)); err != nil {
			return nil, err
		}
	}
	r, err := resolveProblem(&q, kind.NewRun(nil))
	if err != nil {
		return nil, err
	}
	z := &sizeSearch{p: r.problem, changeBatches: batches, attainments: map[string]float64{}, simulate: func(s *solution, hint bool) (float64, error) {
		plan, err := r.withSolution(base, s)
		if err != nil {
			return 0, err
		}
		if plan.Replan != nil && plan.Replan.MovedGPUs > moves.MaxDevices(p, r.pools) {
			return -1, nil
		}
		formats.FlowOf(plan).Scaling = nil // all replicas serve all the time, instead of coming and going
		return simulate(plan, hint)
	}}

	// Plans that keep back more come first: they need few further devices, and what they cost limits the search from the others.
	var starts []*solution
	for _, plan := range slices.Backward(plans) {
		s, err := r.solutionOf(plan)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(starts, func(o *solution) bool { return o.mapKey() == s.mapKey() }) {
			starts = append(starts, s)
		}
	}
	return &Sizing{problem: r, base: base, starts: starts, search: z}, nil
}

// CheapestPlan returns the cheapest plan that the search finds that attains the requested share (of requests within their deadlines). If
// there are too few devices, it returns nil.
//
// The plan keeps the deadlines with the margin and the waits of the first plan, and its devices carry the rates. So it is one of the
// plans from which the first one was chosen, and the bound of these holds for it.
func (z *Sizing) CheapestPlan(requestedAttainment float64) (*formats.Plan, error) {
	z.search.requestedAttainment, z.search.bestSolution = requestedAttainment, nil
	s, err := z.search.cheapest(z.starts...)
	if s == nil || err != nil {
		return nil, err
	}
	return z.problem.withSolution(z.base, s)
}

// withSolution returns a copy of a plan with the devices and batches of another solution, and the objective that these give. The bound
// stays that of basePlan.
func (r *resolvedProblem) withSolution(basePlan *formats.Plan, s *solution) (*formats.Plan, error) {
	plan, bound := *basePlan, math.NaN()
	if basePlan.Objective.Bound != nil {
		bound = *basePlan.Objective.Bound
	}
	o := r.outcome(&solveResult{solution: s, value: r.problem.price(s), bound: bound})
	if r.input.RunningPlan != nil {
		if err := moves.Renumber(r.input, o); err != nil {
			return nil, err
		}
		o.Replan.RunningValue = basePlan.Replan.RunningValue
	}
	plan.Objective, plan.Deployment, plan.Section, plan.Replan = o.Objective, o.Deployment, o.Section, o.Replan
	plan.Objective.BoundAmong = basePlan.Objective.BoundAmong
	return &plan, nil
}

// solutionOf returns a plan in the numbers of the problem that it was made for: the choice of a model for each module, and by model its
// level (a limit on batch times) and devices, without those that the cluster no longer has. If the problem does not have these, it returns
// an error.
func (r *resolvedProblem) solutionOf(plan *formats.Plan) (*solution, error) {
	p, f := r.problem, formats.FlowOf(plan)
	s := p.newSolution()

	// Choices of the modules.
	for a := range p.apps {
		planned := document.First(f.Applications, func(o *formats.FlowApplication) bool { return o.Model == p.apps[a].name })
		if planned == nil || len(planned.Modules) != len(p.apps[a].modules) {
			return nil, fmt.Errorf("it does not serve %s as it is", p.apps[a].name)
		}
		for i, m := range planned.Modules {
			if s.choice[a][i] = slices.IndexFunc(p.apps[a].modules[i].choices, func(c choice) bool { return p.models[c.model].name == m.Model }); s.choice[a][i] < 0 {
				return nil, fmt.Errorf("module %s of %s: the problem has no choice %s", m.Name, planned.Model, m.Model)
			}
		}
	}

	// Levels and devices of the models. A level is recognized by its templates.
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		u := slices.IndexFunc(p.models, func(m model) bool { return m.name == d.Model })
		if u >= 0 {
			s.level[u] = slices.IndexFunc(p.models[u].levels, func(l level) bool {
				return !slices.ContainsFunc(d.Pipelines, func(x formats.Pipeline) bool { return !p.runs(plan, &l, &x) })
			})
		}
		if u < 0 || s.level[u] < 0 {
			return nil, fmt.Errorf("the deployment of %s has devices or batches that the problem does not have", d.Model)
		}
		for _, x := range d.Pipelines {
			k := p.poolIndex(x.Stages[0].Device)
			if !p.isTimeShared(u, s.level[u], k) {
				s.devices[u][k] = x.Stages[0].DevicesBelow(p.pools[k].count)
				continue
			}
			if s.timeShares == nil {
				s.timeShares = make([][]float64, len(p.models))
				for v := range s.timeShares {
					s.timeShares[v] = make([]float64, len(p.pools))
				}
			}
			s.timeShares[u][k] = x.Stages[0].GPUs
		}
	}
	return s, nil
}

// runs returns whether a pipeline of a plan has the devices, batch and shares of one of a level's templates, and takes turns
// on its devices if models do so at that level.
func (p *problem) runs(plan *formats.Plan, l *level, pipeline *formats.Pipeline) bool {
	s := &pipeline.Stages[0]
	k := p.poolIndex(s.Device)
	return k >= 0 && l.templates[k].batch == pipeline.Batch && l.templates[k].sharesPerDevice == s.Share && (l.timeShared && p.pools[k].timeShared) == (p.pools[k].timeShared && takesTurns(plan, s))
}

// poolIndex returns the index of the pool of a device kind, or -1.
func (p *problem) poolIndex(device string) int {
	return slices.IndexFunc(p.pools, func(o pool) bool { return o.kind == device })
}
