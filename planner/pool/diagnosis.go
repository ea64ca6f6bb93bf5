package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
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
	case errors.Is(err, errInfeasible):
		return (&diagnosis{x}).floorsTooHigh(ctx)
	case errors.Is(err, errNoPlan):
		return (&diagnosis{x}).tooFewDevices(ctx)
	}
	return err
}

// carriedGap is how near to its bound the part of the floors is known that whole
// devices carry.
const carriedGap = 2e-3

// idleWeight is the weight of a model without a floor, as a part of the least floor.
const idleWeight = 1e-3

// carried is a plan that carries the floors in whole devices, or else their largest
// common factor: the plan of most throughput, where the floors are the weights.
func (x *search) carried(ctx context.Context) (*Outcome, error) {
	if x.most != nil || x.mostErr != nil {
		return x.most, x.mostErr
	}
	p := x.withoutFloors()
	least := math.Inf(1)
	for _, m := range x.Models {
		if m.MinRPS > 0 {
			least = min(least, m.MinRPS)
		}
	}
	for d := range p.Models {
		if p.Models[d].Weight = x.Models[d].MinRPS; p.Models[d].Weight <= 0 {
			p.Models[d].Weight = least * idleWeight
		}
	}
	x.most, x.mostErr = mostThroughput(ctx, p, x.s, Options{Gap: carriedGap, Effort: x.o.Effort, Seed: x.o.Seed, Any: true, Untold: x.o.Untold, Enough: 1})
	return x.most, x.mostErr
}

// hopeless tells whether no plan carries the floors. Where only that is asked, what
// lies between the most that is carried and its bound is not looked for, if that is little.
func (x *search) hopeless() bool {
	if x.best != nil && x.best.value > 0 || x.stay != nil {
		return false
	}
	return x.mostErr != nil || x.most != nil && (x.most.Bound < 1-tolerance || x.o.Untold && x.most.Value < 1 && x.most.Bound <= x.most.Value*(1+2*carriedGap))
}

// rescue takes the plan that carries most of the floors where the search has none
// that serves every model and that one carries them all.
func (x *search) rescue(ctx context.Context) error {
	if x.best != nil && x.best.value > 0 || ctx.Err() != nil || !x.floored() {
		return nil
	}
	out, err := x.carried(ctx)
	if err != nil || out.Value < 1 {
		var inf *Infeasible
		if errors.As(err, &inf) {
			err = nil // the diagnosis says so
		}
		return err
	}
	at := map[string]int{}
	for i := range x.templates {
		at[x.templates[i].Key()] = i
	}
	var list []count
	for i := range out.Pipelines {
		pl := &out.Pipelines[i]
		k, ok := at[pl.Key()]
		if !ok {
			if !x.partial {
				return nil
			}
			k = len(x.templates)
			x.templates, x.allowed, x.loss = append(x.templates, pl.Template), append(x.allowed, k), append(x.loss, 0)
		}
		list = append(list, count{template: k, model: pl.Model, rps: pl.RPS, replicas: slices.Clone(pl.Replicas)})
	}
	x.keep(x.recount(list))
	x.phase("floors", len(list), milp.Stats{})
	x.done(ctx)
	return nil
}

// floored tells whether a rate is asked of some model.
func (p *Problem) floored() bool {
	return slices.ContainsFunc(p.Models, func(m stages.Model) bool { return m.MinRPS > 0 })
}

// diagnosis tells why a search has no plan.
type diagnosis struct{ *search }

// floorsTooHigh tells which floors exclude each other and the largest common
// factor at which whole devices carry them.
func (x *diagnosis) floorsTooHigh(ctx context.Context) error {
	e := &Infeasible{Model: -1, Constraint: "min_rps"}
	if x.o.Untold {
		return e
	}
	out, err := x.carried(ctx)
	if err != nil {
		return err // without floors there is no plan either
	}
	e.Load = out.Value
	e.Reason = fmt.Sprintf("the devices carry %s times the rates asked as min_rps", kind.Times(e.Load))
	l := x.master(nil, x.roomiest(ctx), -1, true)
	if limits, _, err := milp.FindConflict(ctx, x.s, l.m); err == nil {
		for _, lim := range limits {
			e.Conflict = append(e.Conflict, l.limitName(lim))
		}
	}
	return e
}

// roomiest is the choice of the blocking rule under which the relaxation carries
// the largest common factor of the floors.
func (x *diagnosis) roomiest(ctx context.Context) (set []int) {
	choices, _ := x.blockings()
	most := 0.0
	for _, b := range choices {
		of := x.under(b)
		l := x.master(nil, of, -1, false)
		for d := range x.Models {
			// rate - theta becomes rate - floor * theta >= 0; no floor asks for nothing.
			l.m.AddTerm(l.models[d], l.theta, 1-x.Models[d].MinRPS/x.u.rps[d])
		}
		sol, err := x.s.Solve(ctx, l.m, milp.Options{})
		if err == nil && sol.Status == milp.Optimal && (sol.Value > most || set == nil) {
			most, set = sol.Value, of
		}
	}
	return set
}

// limitName says what a limit of the relaxation stands for.
func (l *master) limitName(lim milp.Limit) string {
	for d := range l.Models {
		if l.floors[d] == lim.Row {
			return fmt.Sprintf("at least %g requests/s of %s", l.Models[d].MinRPS, l.Models[d].Name)
		}
	}
	for k := range l.Pools {
		if l.pools[k] == lim.Row {
			return fmt.Sprintf("%d devices of kind %s", l.Pools[k].Count, l.Pools[k].Kind)
		}
	}
	return lim.String()
}

// tooFewDevices tells how many devices are missing for every model to have one
// replica of each stage of some pipeline, or else what is missing.
func (x *diagnosis) tooFewDevices(ctx context.Context) error {
	e := &Infeasible{Model: -1, Constraint: "devices"}
	if x.o.Untold {
		return e
	}
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
	if x.floored() {
		// One replica each would fit, so it is the floors in whole devices.
		out, err := x.carried(ctx)
		if err != nil {
			return err
		}
		e.Constraint, e.Load = "min_rps", out.Value
		e.Reason = fmt.Sprintf("this cluster reaches %s times the minimum rates asked, in whole devices", kind.Times(e.Load))
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

// missing returns the fewest devices of every pool to add for every model to have one
// replica of each stage of some pipeline; nil where that is not known. Models that can use
// the same devices are counted together.
func (x *diagnosis) missing(ctx context.Context) []int {
	m := milp.New("devices missing")
	pools := make([]milp.Row, len(x.Pools))
	extra := make([]milp.Var, len(x.Pools))
	for k := range x.Pools {
		extra[k] = m.AddInt("more "+x.Pools[k].Kind, 0, 1e6, 1)
		pools[k] = m.AddLE("devices "+x.Pools[k].Kind, float64(x.Pools[k].Count), milp.Term{Var: extra[k], Coef: -1})
	}
	uses, models := x.leastUses()
	for _, key := range slices.Sorted(maps.Keys(models)) {
		row := m.AddEQ("models", float64(len(models[key])))
		for _, use := range uses[models[key][0]] {
			z := m.AddInt("", 0, float64(len(models[key])), 0)
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

// leastUses returns by model the devices of every pool that one replica of each stage of a
// pipeline can take, each use once, and the models by the text of these.
func (x *diagnosis) leastUses() (uses [][][]float64, models map[string][]int) {
	uses, models = make([][][]float64, len(x.Models)), map[string][]int{}
	for _, ti := range x.allowed {
		t := &x.templates[ti]
		if use := x.leastDevices(t); !slices.ContainsFunc(uses[t.Model], func(o []float64) bool { return slices.Equal(o, use) }) {
			uses[t.Model] = append(uses[t.Model], use)
		}
	}
	for d := range uses {
		slices.SortFunc(uses[d], slices.Compare)
		key := fmt.Sprint(uses[d])
		models[key] = append(models[key], d)
	}
	return uses, models
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
	y := q.onePerModel(set)
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
