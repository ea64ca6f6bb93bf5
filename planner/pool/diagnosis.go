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

// explainError replaces an infeasibility by its reason. Other errors are returned as they are.
func (x *search) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInfeasible):
		return (&diagnosis{x}).floorsTooHigh(ctx)
	case errors.Is(err, errNoPlan):
		return (&diagnosis{x}).tooFewDevices(ctx)
	}
	return err
}

// floorPlanGap is the gap to which the part of the floors is known that whole devices carry.
const carriedGap = 2e-3

// floorlessWeight is the weight of a model without a floor, in parts of the smallest floor.
const idleWeight = 1e-3

// largestFloorPlan returns a plan that carries the floors in whole devices or, if there is none, the largest
// common part of them. It is the plan of the most throughput with the floors as weights.
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

// floorsUnreachable reports whether no plan carries the floors. If only the existence of a plan is asked, a part
// of the floors that is nearly the proven largest one decides, too.
func (x *search) hopeless() bool {
	if x.best != nil && x.best.value > 0 || x.stay != nil {
		return false
	}
	return x.mostErr != nil || x.most != nil && (x.most.Bound < 1-tolerance || x.o.Untold && x.most.Value < 1 && x.most.Bound <= x.most.Value*(1+2*carriedGap))
}

// adoptFloorPlan takes the plan that carries the largest part of the floors, if that carries them all and the
// search itself has no plan that serves every model.
func (x *search) rescue(ctx context.Context) error {
	if x.best != nil && x.best.value > 0 || ctx.Err() != nil || !x.floored() {
		return nil
	}

	// The plan that carries the largest part of the floors must carry all of them.
	out, err := x.carried(ctx)
	if err != nil || out.Value < 1 {
		var inf *Infeasible
		if errors.As(err, &inf) {
			err = nil // the diagnosis says so
		}
		return err
	}

	// Find the templates of that plan in the catalogue.
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

	// Keep the plan.
	x.keep(x.recount(list))
	x.phase("floors", len(list), milp.Stats{})
	x.done(ctx)
	return nil
}

// hasFloors reports whether some model has a floor.
func (p *Problem) floored() bool {
	return slices.ContainsFunc(p.Models, func(m stages.Model) bool { return m.MinRPS > 0 })
}

// noPlanDiagnosis finds out why a search has no plan.
type diagnosis struct{ *search }

// floorsTooHigh returns the error for floors that are too high: it names the floors that exclude each other and
// the largest common factor at which whole devices carry them.
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

// mostServingTemplates returns the templates of that wait choice under which the relaxation carries the largest
// common factor of the floors.
func (x *diagnosis) roomiest(ctx context.Context) (set []int) {
	choices, _ := x.blockings()
	most := 0.0
	for _, b := range choices {
		of := x.under(b)
		l := x.master(nil, of, -1, false)
		for d := range x.Models {
			// The row rate - theta >= 0 becomes rate - floor * theta >= 0. A model without a floor asks for
			// nothing.
			l.m.AddTerm(l.models[d], l.theta, 1-x.Models[d].MinRPS/x.u.rps[d])
		}
		sol, err := x.s.Solve(ctx, l.m, milp.Options{})
		if err == nil && sol.Status == milp.Optimal && (sol.Value > most || set == nil) {
			most, set = sol.Value, of
		}
	}
	return set
}

// limitName returns what a limit of the relaxation stands for.
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

// tooFewDevices returns the error for a search without a plan. It says how many devices are missing for every
// model to have one replica of each stage of some pipeline, or else what is missing.
func (x *diagnosis) tooFewDevices(ctx context.Context) error {
	e := &Infeasible{Model: -1, Constraint: "devices"}
	if x.o.Untold {
		return e
	}
	total := 0

	// Devices for one replica of everything.
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
		// One replica of everything fits, so whole devices do not carry the floors.
		out, err := x.carried(ctx)
		if err != nil {
			return err
		}
		e.Constraint, e.Load = "min_rps", out.Value
		e.Reason = fmt.Sprintf("this cluster reaches %s times the minimum rates asked, in whole devices", kind.Times(e.Load))
		return e
	}

	// Memory.
	if k, bytes := x.memoryTogether(ctx); bytes > 0 {
		e.Constraint, e.Memory = "memory", bytes
		e.Reason = fmt.Sprintf("%d models together need at least %d bytes on each %s, which has %d", len(x.Models), bytes, x.Pools[k].Kind, x.Pools[k].Memory)
		return e
	}
	e.Reason = "no plan was found within the work limit; a higher effort may find one"
	return e
}

// missingDevices returns the fewest devices of every pool to add so that every model has one replica of each
// stage of some pipeline. If that is not known, it returns nil. Models that can use the same devices are counted
// together.
func (x *diagnosis) missing(ctx context.Context) []int {
	// Rows of the pools, with additional devices.
	m := milp.New("devices missing")
	pools := make([]milp.Row, len(x.Pools))
	extra := make([]milp.Var, len(x.Pools))
	for k := range x.Pools {
		extra[k] = m.AddInt("more "+x.Pools[k].Kind, 0, 1e6, 1)
		pools[k] = m.AddLE("devices "+x.Pools[k].Kind, float64(x.Pools[k].Count), milp.Term{Var: extra[k], Coef: -1})
	}

	// For each group of models with the same uses, as many uses as models.
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

	// The fewest additional devices.
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

// singleReplicaUses returns, for each model, the devices of every pool that one replica of each stage of a
// template takes, without duplicates. models groups the models by the text of these uses.
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

// jointMemory returns a pool whose memory is too small for every model to have some pipeline, and the bytes per
// device that would do, as few as possible in relation to what the devices have. If memory is enough, it returns
// 0 bytes.
func (x *diagnosis) memoryTogether(ctx context.Context) (pool int, bytes int64) {
	set := all(len(x.templates))
	tight := x.tightMemory(set)

	// A program over one template of every model that minimises the memory beyond that of the devices.
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

	// The bytes that those templates need.
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
