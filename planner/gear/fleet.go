package gear

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/solver/milp"
)

// Kind is a kind of devices.
type Kind struct {
	Name    string
	Devices int
	Memory  int64   // of a device; 0: no limit
	Price   float64 // of a device, where the least of it is to be found
}

// Variant is a model on a kind of devices.
type Variant struct {
	Times  []time.Duration // [b-1]: of a batch of b, undisturbed; none: it is not measured there
	Means  []time.Duration // [b-1]: on average; nil: Times
	Memory int64
}

// run is what a batch takes on average.
func (v *Variant) run(batch int) time.Duration {
	if v.Means != nil {
		return v.Means[batch-1]
	}
	return v.Times[batch-1]
}

// fleet is what plans are made from: the cascades of a problem, and what its models take on
// every kind of devices. Speeds on kinds are unrelated: what a model takes on one says
// nothing of another. So loads come from linear programs. Every program's prices bound
// the load of all other cascades on the placement from below: few programs are solved.
type fleet struct {
	p       *Problem
	solver  milp.Solver
	known   *catalogue
	found   int // cascades enumerated
	list    []Cascade
	order   []int       // of the list, the most accurate first
	reach   [][]float64 // of a request, by cascade and model
	late    []float64   // least share of late requests, by cascade; nil: none are taken that are late
	per     [][]float64 // seconds per sample, by kind and model; infinite: not there
	batch   [][]int     // largest, by kind and model
	chains  []*Chain    // that members may run as
	run     []*Chain    // those of them that a placement is made for
	bit     [][]int     // their stages in the sets of configurations
	configs []Config    // maximal sets by kind; counts to be found
	all     []Config    // of each kind one, with whatever fits alone: for the bound
}

// newFleet is one without cascades.
func newFleet(p *Problem, solver milp.Solver, known *catalogue) *fleet {
	x := &fleet{p: p, solver: solver, known: known}
	x.batch, x.per = speedsOf(p)
	return x
}

// wholeFleet is one with the cascades that whole models answer in time.
func wholeFleet(ctx context.Context, p *Problem, solver milp.Solver, known *catalogue) (*fleet, error) {
	x := newFleet(p, solver, known)
	x.configurations()
	return x, x.cascades(ctx)
}

// within is the fleet with other limits on batches.
func (x *fleet) within(p *Problem) *fleet {
	y := *x
	y.p = p
	y.batch, y.per = speedsOf(p)
	y.take(x.list)
	y.configurations()
	return &y
}

// take makes a list the cascades.
func (x *fleet) take(list []Cascade) {
	x.list, x.order, x.reach = list, upTo(len(list)), make([][]float64, len(list))
	slices.SortFunc(x.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(list[b].Correct, list[a].Correct), cmp.Compare(a, b))
	})
	flat := make([]float64, len(list)*len(x.p.Models))
	for i := range list {
		x.reach[i], flat = flat[:len(x.p.Models):len(x.p.Models)], flat[len(x.p.Models):]
		for k, m := range list[i].Models {
			x.reach[i][m] = float64(list[i].Reach[k]) / float64(x.p.Planned.N)
		}
	}
}

// solve solves a program. A context that has ended is an error, too.
func solve(ctx context.Context, solver milp.Solver, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	sol, err := solver.Solve(ctx, m, o)
	return sol, cmp.Or(err, ctx.Err())
}

// upTo are the numbers from 0 to n-1.
func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// cascades lists those that whole models, or chains, answer in time.
func (x *fleet) cascades(ctx context.Context) error {
	p := x.p
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = x.whole(m) || slices.ContainsFunc(x.chains, func(c *Chain) bool { return c.Model == m })
	}
	if !slices.Contains(usable, true) {
		return &Infeasible{NoneUsable: true, SLO: p.shortest()}
	}
	all, err := x.known.of(ctx, p, usable)
	if err != nil {
		return err
	}
	list := p.inTime(all.list)
	if len(list) == 0 {
		return &Infeasible{NoneInTime: true, SLO: p.shortest()}
	}
	x.found = all.found
	x.take(list)
	return nil
}

// whole tells whether a model runs whole on some kind.
func (x *fleet) whole(m int) bool {
	return slices.ContainsFunc(x.per, func(per []float64) bool { return !math.IsInf(per[m], 1) })
}

// inStages is a planner that may run members as chains. The cascades are those of
// whole models, where chains make no others possible.
func (x *fleet) inStages(ctx context.Context, p *Problem, chains []*Chain, least []time.Duration) (*fleet, error) {
	if len(chains) == 0 {
		return x, nil
	}
	q, others := *p, x.list == nil
	q.Models = slices.Clone(p.Models)
	for m := range q.Models {
		others = others || !x.whole(m)
		if t := least[m]; t > 0 && t < q.Models[m].Times[0] {
			q.Models[m].Times = slices.Clone(q.Models[m].Times)
			q.Models[m].Times[0], others = t, true
		}
	}
	y := *x
	y.p, y.chains, y.run = &q, chains, nil
	if others {
		if err := y.cascades(ctx); err != nil {
			return nil, err
		}
	}
	y.configurations()
	return &y, nil
}

// elsewhere tells whether a model takes longer than the longest batch for one sample on
// a kind and not on another that it fits on.
func elsewhere(p *Problem, m, kind int) bool {
	if times := p.Models[m].On[kind].Times; len(times) == 0 || times[0] <= p.longest {
		return false
	}
	for k := range p.Kinds {
		v := p.Models[m].On[k]
		if k != kind && p.Kinds[k].Devices > 0 && len(v.Times) > 0 && v.Times[0] <= p.longest && (p.Kinds[k].Memory == 0 || v.Memory <= p.Kinds[k].Memory) {
			return true
		}
	}
	return false
}

// configurations are the maximal sets of models, and of stages of the chains that a
// placement is made for, that fit on a device of a kind. Bits of stages are above
// those of models.
func (x *fleet) configurations() {
	p := x.p
	x.configs, x.all, x.bit = nil, nil, make([][]int, len(x.run))
	for c, chain := range x.run {
		x.bit[c] = make([]int, len(chain.Stages))
	}
	for k, kind := range p.Kinds {
		memory, some := slices.Repeat([]int64{-1}, len(p.Models)), uint32(0)
		for m := range p.Models {
			if !math.IsInf(x.per[k][m], 1) {
				memory[m] = p.Models[m].On[k].Memory
				some |= 1 << m
			}
		}
		for c, chain := range x.run {
			for s := range chain.Stages {
				if chain.Stages[s].Kind == k {
					x.bit[c][s] = len(memory)
					memory = append(memory, chain.Stages[s].Memory)
				}
			}
		}
		for _, set := range maximalSets(memory, kind.Memory) {
			x.configs = append(x.configs, Config{Kind: k, Set: set})
		}
		if some != 0 || slices.ContainsFunc(x.chains, func(c *Chain) bool {
			return slices.ContainsFunc(c.Stages, func(s Stage) bool { return s.Kind == k })
		}) {
			x.all = append(x.all, Config{Kind: k, Set: some})
		}
	}
}

// place finds how many devices of a kind hold which models, and stages of chains:
// all ranges together, the relaxation by column generation and then whole numbers
// over its columns. On whole devices a range may have to do with a cascade that only another
// one takes on fractions of them: columns of one are those of all.
func (x *fleet) place(ctx context.Context) (placed []Config, err error) {
	p := x.p
	ranges := upTo(len(p.Edges))
	relaxed := x.newProgram(x.configs, ranges, false)
	relaxed.chains()
	if _, _, err := relaxed.generate(ctx, nil); err != nil {
		return nil, fmt.Errorf("placing models: %w", err)
	}
	g := x.newProgram(x.configs, ranges, true)
	g.chains()
	columns := slices.Compact(slices.Sorted(slices.Values(slices.Concat(relaxed.columns...))))
	for at := range ranges {
		for _, i := range columns {
			g.column(at, i)
		}
	}
	var limits milp.Options
	if len(x.run) > 0 {
		limits = milp.Options{Gap: chainsGap, MaxNodes: chainsNodes}
	}
	sol, err := solve(ctx, x.solver, g.m, limits)
	if err != nil {
		return nil, fmt.Errorf("placing models: %w", err)
	}
	if sol.X == nil {
		return nil, fmt.Errorf("placing models: no solution (%v)", sol.Status)
	}
	out := slices.Clone(x.configs)
	for c := range out {
		out[c].Count = int(math.Round(sol.X[g.count[c]]))
	}
	return slices.DeleteFunc(out, func(c Config) bool { return c.Count == 0 }), nil
}

// Of the program that places chains: where it may stop.
const (
	chainsGap   = 1e-4
	chainsNodes = 2000
)

// chains adds those that a placement is made for to all ranges.
func (g *program) chains() {
	for at := range g.ranges {
		for c, chain := range g.x.run {
			cells := make([][]int, len(chain.Stages))
			for s := range chain.Stages {
				for i, conf := range g.configs {
					if conf.Kind == chain.Stages[s].Kind && conf.Set&(1<<g.x.bit[c][s]) != 0 {
						cells[s] = append(cells[s], i)
					}
				}
			}
			g.spread(at, chain, cells)
		}
	}
}
