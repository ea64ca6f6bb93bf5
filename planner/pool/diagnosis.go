package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// errNoPlan means that no whole replicas serve every model.
var errNoPlan = errors.New("no plan serves every model")

// explain turns infeasibility into its reason; other errors pass.
func (x *search) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInfeasible) && x.goal.cost() == nil:
		return (&diagnosis{x}).floorsTooHigh(ctx)
	case errors.Is(err, errNoPlan):
		return (&diagnosis{x}).tooFewDevices(ctx)
	}
	return err
}

// diagnosis tells why a search has no plan.
type diagnosis struct{ *search }

// floorsTooHigh tells which floors exclude each other and the largest common
// factor at which they fit, over all choices of the blocking rule.
func (x *diagnosis) floorsTooHigh(ctx context.Context) *Infeasible {
	e := &Infeasible{Model: -1, Constraint: "min_rps"}
	choices, _ := x.blockings()
	var nearest []int
	for _, b := range choices {
		set := x.under(b)
		l := x.master(nil, set, -1, false)
		for d := range x.Models {
			// rate - theta becomes rate - floor * theta >= 0; no floor asks for nothing.
			l.m.AddTerm(l.models[d], l.theta, 1-x.Models[d].MinRPS/x.u.rps[d])
		}
		sol, err := x.s.Solve(ctx, l.m, milp.Options{})
		if err != nil || sol.Status != milp.Optimal {
			continue
		}
		if sol.Value > e.Load || nearest == nil {
			e.Load, nearest = sol.Value, set
		}
	}
	l := x.master(nil, nearest, -1, true)
	if c, err := milp.FindConflict(ctx, x.s, l.m, milp.ConflictOptions{}); err == nil {
		for _, lim := range c.Limits {
			e.Conflict = append(e.Conflict, l.limitName(lim))
		}
	}
	e.Reason = fmt.Sprintf("the devices carry %s times the rates asked as min_rps", kind.Times(e.Load))
	return e
}

// limitName says what a limit of the relaxation stands for.
func (l *master) limitName(lim milp.Limit) string {
	for d := range l.Models {
		if !lim.IsVar && l.floors[d] == milp.Row(lim.Index) {
			return fmt.Sprintf("at least %g requests/s of %s", l.Models[d].MinRPS, l.Models[d].Name)
		}
	}
	for k := range l.Pools {
		if !lim.IsVar && l.pools[k] == milp.Row(lim.Index) {
			return fmt.Sprintf("%d devices of kind %s", l.Pools[k].Count, l.Pools[k].Kind)
		}
	}
	return lim.String()
}

// tooFewDevices tells how many devices are missing for every model to have one
// replica of each stage of some pipeline, or else what is missing.
func (x *diagnosis) tooFewDevices(ctx context.Context) error {
	e := &Infeasible{Model: -1, Constraint: "devices"}
	total := 0
	for k, n := range x.missing(ctx) {
		if n > 0 {
			e.Devices = append(e.Devices, Missing{k, n})
			total += n
		}
	}
	if total > 0 {
		e.Reason = fmt.Sprintf("%d models need more devices than there are: at least %d more", len(x.Models), total)
		return e
	}
	if slices.ContainsFunc(x.Models, func(m stages.Model) bool { return m.MinRPS > 0 }) {
		// One replica each would fit, so it is the floors in whole devices.
		e.Constraint, e.Load = "min_rps", x.wholeFactor(ctx, x.withoutFloors())
		e.Reason = fmt.Sprintf("in whole devices the cluster carries about %s times the rates asked as min_rps", kind.Times(e.Load))
		return e
	}
	if k, bytes := x.memoryTogether(ctx); bytes > 0 {
		e.Constraint, e.Memory = "memory", bytes
		e.Reason = fmt.Sprintf("%d models together need at least %d bytes on each %s, which has %d", len(x.Models), bytes, x.Pools[k].Kind, x.Pools[k].Memory)
		return e
	}
	e.Reason = "no plan was found within the work limit; a higher effort may find one"
	return e
}

// missing is the fewest devices of every pool to add for every model to have one
// replica of each stage of some pipeline; nil where that is not known.
func (x *diagnosis) missing(ctx context.Context) []int {
	m := milp.New("devices missing")
	pools := make([]milp.Row, len(x.Pools))
	extra := make([]milp.Var, len(x.Pools))
	for k := range x.Pools {
		extra[k] = m.AddInt("more "+x.Pools[k].Kind, 0, 1e6, 1)
		pools[k] = m.AddLE("devices "+x.Pools[k].Kind, float64(x.Pools[k].Count), milp.Term{Var: extra[k], Coef: -1})
	}
	for d := range x.Models {
		row := m.AddEQ("model "+x.Models[d].Name, 1)
		seen := map[string]bool{}
		for _, ti := range x.allowed {
			t := &x.templates[ti]
			if t.Model != d {
				continue
			}
			use := make([]float64, len(x.Pools))
			for si := range t.Stages {
				s := &t.Stages[si]
				switch {
				case x.Pools[s.Pool].Time:
				case x.Rounding == Slot:
					use[s.Pool]++
				default:
					use[s.Pool] += 1 / float64(s.Share)
				}
			}
			key := fmt.Sprint(use)
			if seen[key] {
				continue
			}
			seen[key] = true
			z := m.AddBool("", 0)
			m.AddTerm(row, z, 1)
			for k, v := range use {
				m.AddTerm(pools[k], z, v)
			}
		}
	}
	sol, err := x.s.Solve(ctx, m, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return nil
	}
	out := make([]int, len(extra))
	for k, v := range extra {
		out[k] = sol.Int(v)
	}
	return out
}

// memoryTogether is the pool whose memory is too small for every model to have
// some pipeline there or elsewhere, and the bytes per device that would do, as
// few as can be against what the devices have; 0 where memory is enough.
func (x *diagnosis) memoryTogether(ctx context.Context) (pool int, bytes int64) {
	set := all(len(x.templates))
	tight := x.tightMemory(set)
	q := &program{catalogue: x.catalogue, m: milp.New("memory missing"), memory: make([]milp.Row, len(x.Pools))}
	for k := range x.Pools {
		q.memory[k] = -1
		if tight[k] {
			q.memory[k] = q.m.AddLE("memory "+x.Pools[k].Kind, 1, milp.Term{Var: q.m.AddVar("more "+x.Pools[k].Kind, 0, milp.Inf, 1), Coef: -1})
		}
	}
	var one []milp.Row
	for d := range x.Models {
		one = append(one, q.m.AddEQ("model "+x.Models[d].Name, 1))
	}
	y := make([]milp.Var, len(set))
	for i := range set {
		t := &x.templates[i]
		y[i] = q.m.AddBool("", 0)
		q.m.AddTerm(one[t.Model], y[i], 1)
		q.addMemory(t, y[i])
	}
	sol, err := x.s.Solve(ctx, q.m, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return 0, 0
	}
	r := x.resident()
	for i := range set {
		if sol.Int(y[i]) > 0 {
			r.add(&x.templates[i])
		}
	}
	for k := range x.Pools {
		if tight[k] && r.bytes[k] > x.Pools[k].Memory {
			return k, r.bytes[k]
		}
	}
	return 0, 0
}

// wholeFactor is the largest factor of the floors that a plan of whole devices
// was found for.
func (x *diagnosis) wholeFactor(ctx context.Context, free *Problem) float64 {
	set := x.pick(x.ranked(), x.lp.used, poolPerModel)
	q := x.on(free).program(set, 1e6, 0)
	for d := range free.Models {
		q.m.AddTerm(q.byModel[d], q.theta, 1-x.Models[d].MinRPS/x.u.rps[d])
	}
	sol, err := x.s.Solve(ctx, q.m, milp.Options{Gap: 1e-3, MaxNodes: poolNodes})
	if err != nil || !sol.Feasible() {
		return 0
	}
	return sol.Value
}
