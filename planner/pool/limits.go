package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Limit tells what a little more of something would buy, by the bound.
type Limit struct {
	Pool   int // -1 where it is a model's SLO
	Model  int // -1 where it is a pool
	Change float64
	Value  float64 // of the objective, by the relaxation
	Gain   float64 // relative to the relaxation now
}

// SLOStep is the change of an SLO that limits look at.
const SLOStep = 10 * time.Millisecond

// limits solves the relaxation again with one more device of each kind, and
// with each model's SLO relaxed by SLOStep: by falling gain.
func (x *search) limits(ctx context.Context) []Limit {
	var out []Limit
	now := x.lp.value
	add := func(l Limit, r *relaxation, err error) {
		if err != nil || r.value <= now*(1+1e-6) {
			return
		}
		l.Value = x.theta(r.value)
		l.Gain = r.value/now - 1
		out = append(out, l)
	}
	for k := range x.p.Pools {
		if ctx.Err() != nil || x.p.Pools[k].Count == 0 {
			continue
		}
		r, err := x.p.relax(ctx, x.s, x.u, nil, x.templates, x.allowed, k)
		add(Limit{Pool: k, Model: -1, Change: 1}, r, err)
	}
	for d := range x.p.Models {
		if ctx.Err() != nil || x.partial {
			break // too many pipelines to list again
		}
		wide := *x.p
		wide.Models = slices.Clone(x.p.Models)
		wide.Models[d].SLO += SLOStep
		wide.Models[d].Margin = Margin(wide.Models[d].SLO, wide.MarginShare)
		more, _, err := wide.enumerate(d)
		if err != nil {
			continue
		}
		var list []stages.Template
		var set []int
		for _, i := range x.allowed {
			if x.templates[i].Model != d {
				list = append(list, x.templates[i])
			}
		}
		for i := range more {
			if x.rule.allows(&wide, &more[i]) {
				list = append(list, more[i])
			}
		}
		for i := range list {
			set = append(set, i)
		}
		r, err := wide.relax(ctx, x.s, x.u, nil, list, set, -1)
		add(Limit{Pool: -1, Model: d, Change: float64(SLOStep)}, r, err)
	}
	slices.SortStableFunc(out, func(a, b Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	return out
}

// Margin is what is kept back from an SLO: whole microseconds.
func Margin(slo time.Duration, share float64) time.Duration {
	return time.Duration(math.Round(share*float64(slo)/1000)) * time.Microsecond
}

// Infeasible explains why there is no plan.
type Infeasible struct {
	Model      int    // -1 where no single model is the cause
	Constraint string // slo, memory, devices, min_rps
	Reason     string
	SLO        time.Duration // smallest with a pipeline; 0 where that is not the cause
	Memory     int64         // bytes per device at which a pipeline fits
	Load       float64       // largest factor of the floors that fits
	Devices    []Missing     // fewest devices to add
	Conflict   []string      // limits that exclude each other
}

// Missing is a number of devices that a pool lacks.
type Missing struct{ Pool, Count int }

func (e *Infeasible) Error() string { return e.Reason }

// noPipeline explains why model d has no template at all.
func (p *Problem) noPipeline(d, tooBig int) error {
	m := &p.Models[d]
	e := &Infeasible{Model: d}
	need, batch, ok := p.leastTime(d)
	if !ok {
		e.Constraint = "memory"
		e.Memory = p.LeastMemory(d)
		if e.Memory == 0 {
			e.Constraint = "devices"
			e.Reason = fmt.Sprintf("%s was measured on no device of the cluster", m.Name)
			return e
		}
		e.Reason = fmt.Sprintf("%s fits no device: its smallest pipeline needs %d bytes on a device", m.Name, e.Memory)
		return e
	}
	e.Constraint = "slo"
	e.SLO = leastSLO(need, p.MarginShare)
	e.Reason = fmt.Sprintf("no pipeline of %s keeps its SLO: the fastest takes %v at batch %d, and %v less the margin of %v leaves %v",
		m.Name, need, batch, m.SLO, m.Margin, m.SLO-m.Margin)
	if tooBig > 0 {
		e.Reason += "; some are left out because they do not fit in memory"
	}
	return e
}

// leastTime is the least latency with batch building of any pipeline within
// the memory limits, whatever the SLO.
func (p *Problem) leastTime(d int) (least time.Duration, batch int, ok bool) {
	m := &p.Models[d]
	for _, b := range m.BatchSizes() {
		if t, found := p.Fastest(d, b); found && (!ok || t+m.BuildTime(b) < least) {
			least, batch, ok = t+m.BuildTime(b), b, true
		}
	}
	return least, batch, ok
}

// leastSLO is the smallest SLO of whole microseconds that leaves need after
// the margin.
func leastSLO(need time.Duration, share float64) time.Duration {
	fits := func(us int64) bool {
		slo := time.Duration(us) * time.Microsecond
		return slo-Margin(slo, share) >= need
	}
	lo, hi := int64(0), int64(1)
	for !fits(hi) && hi < 1<<40 {
		lo, hi = hi, hi*2
	}
	// What is left after the margin never falls from one microsecond to the next.
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; fits(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return time.Duration(hi) * time.Microsecond
}

// errNoPlan means that no whole replicas serve every model.
var errNoPlan = errors.New("no plan serves every model")

// explain turns infeasibility into its reason; other errors pass.
func (x *search) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInfeasible) && x.goal.cost() == nil:
		return x.floorsTooHigh(ctx)
	case errors.Is(err, errNoPlan):
		return x.tooFewDevices(ctx)
	}
	return err
}

// floorsTooHigh tells which floors exclude each other and the largest common
// factor at which they fit, over all choices of the blocking rule.
func (x *search) floorsTooHigh(ctx context.Context) error {
	e := &Infeasible{Model: -1, Constraint: "min_rps"}
	choices, _ := x.p.blockings(x.templates)
	if choices == nil {
		choices = []*blocking{nil}
	}
	var nearest []int
	for _, b := range choices {
		set := x.under(b)
		l := x.p.lp(x.u, nil, x.templates, set, -1, false)
		for d := range x.p.Models {
			// rate - theta becomes rate - floor * theta >= 0; no floor asks for nothing.
			l.m.AddTerm(l.models[d], l.theta, 1-x.p.Models[d].MinRPS/x.u.rps[d])
		}
		sol, err := x.s.Solve(ctx, l.m, milp.Options{})
		if err != nil || sol.Status != milp.Optimal {
			continue
		}
		if sol.Value > e.Load || nearest == nil {
			e.Load, nearest = sol.Value, set
		}
	}
	lp := x.p.lp(x.u, nil, x.templates, nearest, -1, true)
	if c, err := milp.FindConflict(ctx, x.s, lp.m, milp.ConflictOptions{}); err == nil {
		for _, lim := range c.Limits {
			e.Conflict = append(e.Conflict, x.p.limitName(lp, lim))
		}
	}
	e.Reason = fmt.Sprintf("the devices carry %s times the rates asked as min_rps", kind.Times(e.Load))
	return e
}

// limitName says what a limit of the relaxation stands for.
func (p *Problem) limitName(l *lpModel, lim milp.Limit) string {
	for d := range p.Models {
		if !lim.IsVar && l.floors[d] == milp.Row(lim.Index) {
			return fmt.Sprintf("at least %g requests/s of %s", p.Models[d].MinRPS, p.Models[d].Name)
		}
	}
	for k := range p.Pools {
		if !lim.IsVar && l.pools[k] == milp.Row(lim.Index) {
			return fmt.Sprintf("%d devices of kind %s", p.Pools[k].Count, p.Pools[k].Kind)
		}
	}
	return lim.String()
}

// tooFewDevices tells how many devices are missing for every model to have one
// replica of each stage of some pipeline.
func (x *search) tooFewDevices(ctx context.Context) error {
	e := &Infeasible{Model: -1, Constraint: "devices"}
	p := x.p
	for d := range p.Models {
		if p.Models[d].MinRPS > 0 {
			e.Constraint = "min_rps"
		}
	}
	m := milp.New("devices missing")
	pools := make([]milp.Row, len(p.Pools))
	extra := make([]milp.Var, len(p.Pools))
	for k := range p.Pools {
		extra[k] = m.AddInt("more "+p.Pools[k].Kind, 0, 1e6, 1)
		pools[k] = m.AddLE("devices "+p.Pools[k].Kind, float64(p.Pools[k].Count), milp.Term{Var: extra[k], Coef: -1})
	}
	for d := range p.Models {
		row := m.AddEQ("model "+p.Models[d].Name, 1)
		seen := map[string]bool{}
		for _, ti := range x.allowed {
			t := &x.templates[ti]
			if t.Model != d {
				continue
			}
			use := make([]float64, len(p.Pools))
			for si := range t.Stages {
				s := &t.Stages[si]
				switch {
				case p.Pools[s.Pool].Time:
				case p.Rounding == Slot:
					use[s.Pool]++
				default:
					use[s.Pool] += 1 / float64(s.Share)
				}
			}
			if key := fmt.Sprint(use); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			z := m.AddBool("", 0)
			m.AddTerm(row, z, 1)
			for k, v := range use {
				m.AddTerm(pools[k], z, v)
			}
		}
	}
	sol, err := x.s.Solve(ctx, m, milp.Options{MaxNodes: 10000})
	total := 0
	if err == nil && sol.Feasible() {
		for k := range p.Pools {
			if n := sol.Int(extra[k]); n > 0 {
				e.Devices = append(e.Devices, Missing{k, n})
				total += n
			}
		}
	}
	if total > 0 {
		e.Constraint = "devices"
		e.Reason = fmt.Sprintf("%d models need more devices than there are: at least %d more", len(p.Models), total)
		return e
	}
	if e.Constraint == "min_rps" {
		// One replica each would fit, so it is the floors in whole devices.
		free := *p
		free.Models = slices.Clone(p.Models)
		for d := range free.Models {
			free.Models[d].MinRPS = 0
		}
		e.Load = x.wholeFactor(ctx, &free)
		e.Reason = fmt.Sprintf("in whole devices the cluster carries about %s times the rates asked as min_rps", kind.Times(e.Load))
		return e
	}
	if k, bytes := x.memoryTogether(ctx); bytes > 0 {
		e.Constraint, e.Memory = "memory", bytes
		e.Reason = fmt.Sprintf("%d models together need at least %d bytes on each %s, which has %d", len(p.Models), bytes, p.Pools[k].Kind, p.Pools[k].Memory)
		return e
	}
	e.Reason = "no plan was found within the work limit; a higher effort may find one"
	return e
}

// memoryTogether is the pool whose memory is too small for every model to have
// some pipeline there or elsewhere, and the bytes per device that would do, as
// few as can be against what the devices have; 0 where memory is enough.
func (x *search) memoryTogether(ctx context.Context) (pool int, bytes int64) {
	p := x.p
	set := all(len(x.templates))
	tight := p.tightMemory(x.templates, set)
	q := &mipModel{m: milp.New("memory missing")}
	rows := make([]milp.Row, len(p.Pools))
	for k := range p.Pools {
		rows[k] = -1
		if tight[k] {
			rows[k] = q.m.AddLE("memory "+p.Pools[k].Kind, 1, milp.Term{Var: q.m.AddVar("more "+p.Pools[k].Kind, 0, milp.Inf, 1), Coef: -1})
		}
	}
	var one []milp.Row
	for d := range p.Models {
		one = append(one, q.m.AddEQ("model "+p.Models[d].Name, 1))
	}
	y := make([]milp.Var, len(set))
	for i := range set {
		t := &x.templates[i]
		y[i] = q.m.AddBool("", 0)
		q.m.AddTerm(one[t.Model], y[i], 1)
		p.addMemory(q, t, y[i], rows)
	}
	sol, err := x.s.Solve(ctx, q.m, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return 0, 0
	}
	r := p.resident()
	for i := range set {
		if sol.Int(y[i]) > 0 {
			r.add(&x.templates[i])
		}
	}
	for k := range p.Pools {
		if tight[k] && r.bytes[k] > p.Pools[k].Memory {
			return k, r.bytes[k]
		}
	}
	return 0, 0
}

// wholeFactor is the largest factor of the floors that a plan of whole devices
// was found for.
func (x *search) wholeFactor(ctx context.Context, free *Problem) float64 {
	set := x.pick(x.ranked(), x.lp.used, poolPerModel)
	q := free.mip(x.u, x.templates, set, 1e6, 0)
	for d := range free.Models {
		q.m.AddTerm(q.byModel[d], q.theta, 1-x.p.Models[d].MinRPS/x.u.rps[d])
	}
	sol, err := x.s.Solve(ctx, q.m, milp.Options{Gap: 1e-3, MaxNodes: poolNodes})
	if err != nil || !sol.Feasible() {
		return 0
	}
	return sol.Value
}
