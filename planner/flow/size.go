package flow

import (
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// AttainmentFunc simulates a plan and returns the share of the requests that are in time. The arrivals must
// be the same for every plan, so that plans differ only by their devices and batches. A hint may simulate
// only a part of them.
type Shown func(plan *formats.Plan, hint bool) (float64, error)

// SizeBySimulation looks for the cheapest plan that attains a requested share in simulation. It starts from
// plans for the same workload, the first of which has the least margin. Devices are added and removed, and
// batch sizes change if batches is true. If there are too few devices, it returns nil.
//
// The result keeps the deadlines with the margin of the first plan, and its capacities stay above the
// rates. So the bound of the first plan holds for it.
func Sized(p *kind.Problem, plans []*formats.Plan, batches bool, asked float64, shown Shown) (*formats.Plan, error) {
	base, q := plans[0], *p
	if err := q.Values.Set("margin", base.Options.Number("margin")); err != nil {
		return nil, err
	}
	r, err := resolve(&q, kind.NewRun(nil))
	if err != nil {
		return nil, err
	}
	z := newSizing(r.problem, asked, batches, func(s *picked, hint bool) (float64, error) {
		plan := r.redeployed(base, s)
		formats.FlowOf(plan).Scaling = nil // all devices count
		return shown(plan, hint)
	})
	for _, plan := range plans {
		z.begin(r.picked(plan))
	}
	s, err := z.cheapest()
	if s == nil || err != nil {
		return nil, err
	}
	return r.redeployed(base, s), nil
}

// withSolution returns a plan with the devices and batches of another solution.
func (r *resolved) redeployed(base *formats.Plan, s *picked) *formats.Plan {
	out, bound := *base, math.NaN()
	if base.Objective.Bound != nil {
		bound = *base.Objective.Bound
	}
	o := r.outcome(&found{picked: s, value: r.problem.price(s), bound: bound})
	out.Objective, out.Deployment, out.Section = o.Objective, o.Deployment, o.Section
	return &out
}

// solutionOf returns a plan as a solution of the problem that it was made for.
func (r *resolved) picked(plan *formats.Plan) *picked {
	p, f := r.problem, formats.FlowOf(plan)
	s := &picked{level: make([]int, len(p.models))}
	for u := range p.models {
		s.level[u], s.devices = -1, append(s.devices, make([]int, len(p.pools)))
	}

	// Choices of the modules.
	for a := range f.Applications {
		var list []int
		for i, m := range f.Applications[a].Modules {
			list = append(list, slices.IndexFunc(p.apps[a].nodes[i].of, func(c choice) bool { return p.models[c.model].name == m.Model }))
		}
		s.choice = append(s.choice, list)
	}

	// Levels and devices of the models. A level is recognized by its templates.
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		u := slices.IndexFunc(p.models, func(m model) bool { return m.name == d.Model })
		s.level[u] = slices.IndexFunc(p.models[u].levels, func(l level) bool {
			return !slices.ContainsFunc(d.Pipelines, func(x formats.Pipeline) bool {
				t := &l.best[p.pool(x.Stages[0].Device)]
				return t.batch != x.Batch || t.share != x.Stages[0].Share
			})
		})
		for _, x := range d.Pipelines {
			s.devices[u][p.pool(x.Stages[0].Device)] = int(x.Stages[0].GPUs)
		}
	}
	return s
}

// poolIndex returns the index of the pool of a device kind, or -1.
func (p *problem) pool(device string) int {
	return slices.IndexFunc(p.pools, func(o pool) bool { return o.kind == device })
}
