package latebound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
)

// Options steer the capacity bound.
type Options struct {
	// Times is the number of due times per kind of device at which capacity is counted;
	// 0 is 40.
	Times int
	// Nodes, if above 0, tightens the bound by branch and bound over this many nodes:
	// changes of model then happen as a whole.
	Nodes int64
}

// Bound is a number of requests that every order and assignment of the groups makes
// late at the mean times.
type Bound struct {
	Late  float64
	Stats milp.Stats
}

// Prove proves a bound on the late requests of a problem that judges by means.
//
// The groups in time on a kind of device that are due by a time fit before it, with
// one change per model and queue for what is loaded nowhere, or is loaded on too few
// queues to be served there. Groups are not split, so large ones do not fill queues:
// rows of dual feasible functions count that (Fekete and Schepers, 2001). The
// program chooses which part of every group is in time and on which kind.
func Prove(ctx context.Context, solver milp.Solver, p *vqueue.Problem, o Options) (*Bound, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.LatenessRule != vqueue.ByMeans || p.Z != 0 {
		return nil, errors.New("the capacity bound is one at mean times: expected the judge by means, with z 0")
	}
	if o.Times == 0 {
		o.Times = 40
	}
	b := &bounder{p: p, m: milp.New("capacity bound"), whole: o.Nodes > 0, intime: make([][]milp.Term, len(p.Groups))}
	for k := range p.Kinds {
		b.addFleet(int32(k), o.Times)
	}
	total := 0.0
	for i := range p.Groups {
		size := p.Groups[i].Size
		total += size
		u := b.m.AddVar("", 0, 1, size)
		b.m.AddEQ("", 1, append(b.intime[i], milp.Term{Var: u, Coef: 1})...)
	}
	if total == 0 {
		return &Bound{}, nil
	}
	sol, err := solver.Solve(ctx, b.m, milp.Options{MaxNodes: o.Nodes})
	if err != nil {
		return nil, fmt.Errorf("solving for the capacity bound: %w", err)
	}
	out := &Bound{Stats: sol.Stats}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !b.whole && sol.Status != milp.Optimal {
		return nil, fmt.Errorf("the program of the capacity bound ended with status %s", sol.Status)
	}
	if !math.IsNaN(sol.Bound) {
		// The solver's tolerances are relative to numbers of this size.
		out.Late = max(sol.Bound-1e-6*total, 0)
	}
	return out, nil
}

// bounder builds the program of a bound.
type bounder struct {
	p      *vqueue.Problem
	m      *milp.Model
	whole  bool          // changes of model happen as a whole
	intime [][]milp.Term // by group: its parts in time
}

// part is the part of a group that a kind serves in time.
type part struct {
	v     milp.Var
	group int32
	due   float64 // latest end of its work
	work  float64
	stuck bool // only in time where its model is loaded
}

// addFleet adds the capacity of queues of a kind of device.
func (b *bounder) addFleet(k int32, times int) {
	f := b.fleet(k)
	if f.queues == 0 {
		return
	}
	var parts []part
	for i := range b.p.Groups {
		g, c := &b.p.Groups[i], b.p.Cost(int32(i), k)
		due := g.Deadline[vqueue.Quantiles-1] - c.Residence
		if math.IsInf(c.Work+f.change[g.Model], 1) || due < f.earliest(g.Model)+c.Work {
			continue
		}
		v := b.m.AddVar("", 0, 1, 0)
		parts = append(parts, part{v, int32(i), due, c.Work, due < f.first+f.change[g.Model]+c.Work})
		b.intime[i] = append(b.intime[i], milp.Term{Var: v, Coef: 1})
	}
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(x.due, y.due) })
	b.addTimes(f, parts, times)
}

// roomy is the number of terms up to which a queue's capacity is divided.
const roomy = 4

// addPacking adds the rows of dual feasible functions for the groups due by a time:
// u(x) = floor((k+1) x) / k, or x where (k+1) x is whole, of sizes x relative to a
// queue sums to at most 1 over the groups of any queue.
func (b *bounder) addPacking(f *fleet, parts []part, due float64) {
	room := due - f.first
	for k := 1.0; k <= roomy; k++ {
		var row []milp.Term
		for _, x := range parts {
			size := (k + 1) * x.work / room
			u := math.Floor(size) / k
			if n := math.Round(size); math.Abs(size-n) < 1e-6 {
				u = min(n/(k+1), (n-1)/k) // rounding must not tighten the row
			}
			if u > 0 {
				row = append(row, milp.Term{Var: x.v, Coef: u})
			}
		}
		if len(row) > f.queues {
			b.m.AddLE("", float64(f.queues), row...)
		}
	}
}

// addTimes adds the rows at some of the due times.
func (b *bounder) addTimes(f *fleet, parts []part, times int) {
	before := make([]milp.Var, b.p.Models) // work due by the time before, by model
	changed := make([]milp.Var, b.p.Models)
	for m := range before {
		before[m], changed[m] = -1, -1
	}
	from := 0
	for t := range times {
		to := (t + 1) * len(parts) / times
		for to < len(parts) && to > 0 && parts[to].due == parts[to-1].due {
			to++
		}
		if to <= from {
			continue
		}
		due := parts[to-1].due
		row := b.addModels(f, parts[:to], from, due, before, changed)
		if len(row) > 0 {
			b.m.AddLE("", f.capacity(due), row...)
		}
		b.addPacking(f, parts[:to], due)
		from = to
	}
}

// addModels adds what each model needs by a time and returns the terms of the
// capacity that all of them need.
func (b *bounder) addModels(f *fleet, all []part, from int, due float64, before, changed []milp.Var) []milp.Term {
	parts := all[from:]
	var row []milp.Term
	added := make([][]milp.Term, b.p.Models)
	for _, x := range parts {
		m := b.p.Groups[x.group].Model
		added[m] = append(added[m], milp.Term{Var: x.v, Coef: -x.work})
	}
	for m := range b.p.Models {
		if stuck := b.stuck(all, m); len(stuck) > 1 {
			b.m.AddLE("", f.loadedCapacity(m, due), stuck...)
		}
		if len(added[m]) == 0 && before[m] < 0 {
			continue
		}
		work := b.m.AddVar("", 0, milp.Inf, 0)
		terms := append(added[m], milp.Term{Var: work, Coef: 1})
		if before[m] >= 0 {
			terms = append(terms, milp.Term{Var: before[m], Coef: -1})
		}
		b.m.AddEQ("", 0, terms...)
		before[m] = work
		row = append(row, milp.Term{Var: work, Coef: 1})
		if z := b.addChange(f, m, work, parts, due, changed); z >= 0 && f.change[m] > 0 {
			row = append(row, milp.Term{Var: z, Coef: f.change[m]})
		}
	}
	return row
}

// stuck is the work of a model that is in time only where the model is loaded.
func (b *bounder) stuck(parts []part, m int) []milp.Term {
	var row []milp.Term
	for _, x := range parts {
		if x.stuck && int(b.p.Groups[x.group].Model) == m {
			row = append(row, milp.Term{Var: x.v, Coef: x.work})
		}
	}
	return row
}

// addChange adds the number of queues that change to a model by a time: enough for
// its work, at least one where it is loaded nowhere.
func (b *bounder) addChange(f *fleet, m int, work milp.Var, parts []part, due float64, changed []milp.Var) milp.Var {
	unloaded := float64(f.queues - f.loaded[m])
	z := b.m.AddVar("", 0, unloaded, 0)
	b.m.SetInteger(z, b.whole)
	if changed[m] >= 0 {
		b.m.AddLE("", 0, milp.Term{Var: changed[m], Coef: 1}, milp.Term{Var: z, Coef: -1})
	}
	changed[m] = z
	b.m.AddLE("", f.loadedCapacity(m, due), milp.Term{Var: work, Coef: 1}, milp.Term{Var: z, Coef: -max(due-f.first-f.change[m], 0)})
	if f.loaded[m] == 0 {
		for _, x := range parts {
			if int(b.p.Groups[x.group].Model) == m {
				b.m.AddLE("", 0, milp.Term{Var: x.v, Coef: 1}, milp.Term{Var: z, Coef: -1})
			}
		}
	}
	return z
}

// fleet is some queues of one kind.
type fleet struct {
	queues   int
	starts   []float64
	startsOf [][]float64 // by model: of the queues where it is loaded
	first    float64     // earliest start
	loaded   []int       // by model
	change   []float64   // by model: the least
}

func (b *bounder) fleet(kind int32) *fleet {
	f := &fleet{first: math.Inf(1), loaded: make([]int, b.p.Models), change: make([]float64, b.p.Models), startsOf: make([][]float64, b.p.Models)}
	for m := range f.change {
		f.change[m] = math.Inf(1)
	}
	for i := range b.p.Queues {
		q := &b.p.Queues[i]
		if q.Kind != kind {
			continue
		}
		f.queues++
		f.first = min(f.first, q.Start)
		f.starts = append(f.starts, q.Start)
		for m, s := range q.Setup {
			f.change[m] = min(f.change[m], s)
		}
		if q.Model >= 0 {
			f.loaded[q.Model]++
			f.startsOf[q.Model] = append(f.startsOf[q.Model], q.Start)
		}
	}
	return f
}

// earliest is when a queue may first serve a model.
func (f *fleet) earliest(m int32) float64 {
	first := f.first + f.change[m]
	for _, s := range f.startsOf[m] {
		first = min(first, s)
	}
	return first
}

// capacity is the time of all queues before a time.
func (f *fleet) capacity(due float64) float64 { return before(f.starts, due) }

// loadedCapacity is that of the queues where a model is loaded.
func (f *fleet) loadedCapacity(m int, due float64) float64 { return before(f.startsOf[m], due) }

func before(starts []float64, due float64) float64 {
	sum := 0.0
	for _, s := range starts {
		sum += max(due-s, 0)
	}
	return sum
}
