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

// Kind is a kind of devices, where a cluster has several. A unit of Span devices
// of another kind, Of, that work as one, is a kind of its own without devices.
type Kind struct {
	Name    string
	Devices int
	Memory  int64 // of a device or unit; 0: no limit
	Of      int   // kind whose devices make the units; negative: it has its own
	Span    int
	Price   float64 // of a device, where the least of it is to be found
}

// Variant is a model on a kind of devices.
type Variant struct {
	Times  []time.Duration // [b-1]: of a batch of b; none: it is not measured there
	Memory int64
}

// Config is how many devices of a kind hold the same models.
type Config struct {
	Kind  int
	Set   uint32
	Count int
}

// mixed plans for several kinds of devices. Speeds are unrelated: what a model
// takes on one kind says nothing of another. So loads come from linear programs
// instead of Hall's condition. Every program's prices bound the load of all other
// cascades on the placement from below: few programs are solved.
type mixed struct {
	p       *Problem
	solver  milp.Solver
	known   catalogue // of cascades
	found   int       // cascades enumerated
	list    []Cascade
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

// Mixed tells that a problem has several kinds of devices.
func (p *Problem) Mixed() bool { return len(p.Kinds) > 0 }

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

// variantOf is a model on a kind.
func variantOf(p *Problem, m, k int) *Variant { return &p.Models[m].On[k] }

// cascades lists those that whole models, or chains, answer in time.
func (x *mixed) cascades() error {
	p := x.p
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = x.whole(m) || slices.ContainsFunc(x.chains, func(c *Chain) bool { return c.Model == m })
	}
	var err error
	if x.list, x.found, err = x.known.inTime(p, usable); err != nil {
		return err
	}
	for i := range x.list {
		row := make([]float64, len(p.Models))
		for k, m := range x.list[i].Models {
			row[m] = float64(x.list[i].Reach[k]) / float64(p.Planned.N)
		}
		x.reach = append(x.reach, row)
	}
	return nil
}

// whole tells whether a model runs whole on some kind.
func (x *mixed) whole(m int) bool {
	return slices.ContainsFunc(x.per, func(per []float64) bool { return !math.IsInf(per[m], 1) })
}

// inStages is a planner that may run members as chains. The cascades are those of
// whole models, where chains make no others possible.
func (x *mixed) inStages(p *Problem, chains []*Chain, least []time.Duration) (*mixed, error) {
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
	y := &mixed{p: &q, solver: x.solver, known: x.known, found: x.found, list: x.list, reach: x.reach, per: x.per, batch: x.batch, chains: chains}
	if others {
		y.list, y.reach = nil, nil
		if err := y.cascades(); err != nil {
			return nil, err
		}
	}
	y.configurations()
	return y, nil
}

// staged plans with the chains that were picked.
func (x *mixed) staged(ctx context.Context, o *Options) (*Outcome, error) {
	placed, columns, err := x.place(ctx)
	if err != nil {
		return nil, err
	}
	l, err := x.arrange(ctx, placed, columns)
	if err != nil {
		return nil, err
	}
	return l.design(o, nil).plan(ctx, 0, o)
}

// elsewhere tells whether a model takes longer than the longest batch for one sample on
// a kind and not on another that it fits on.
func elsewhere(p *Problem, m, kind int) bool {
	if times := variantOf(p, m, kind).Times; len(times) == 0 || times[0] <= p.longest {
		return false
	}
	for k := range p.Kinds {
		v := variantOf(p, m, k)
		if k != kind && p.Kinds[k].Devices > 0 && len(v.Times) > 0 && v.Times[0] <= p.longest && (p.Kinds[k].Memory == 0 || v.Memory <= p.Kinds[k].Memory) {
			return true
		}
	}
	return false
}

// priceModels finds the batches at which models are cheapest within the SLO.
func (x *mixed) priceModels() {
	p := x.p
	for k := range p.Kinds {
		per, batch := make([]float64, len(p.Models)), make([]int, len(p.Models))
		for m := range p.Models {
			v := variantOf(p, m, k)
			per[m] = math.Inf(1)
			if p.Kinds[k].Memory > 0 && v.Memory > p.Kinds[k].Memory || p.fastOnly && elsewhere(p, m, k) {
				continue
			}
			for b, t := range v.Times {
				if b > 0 && p.longest > 0 && t > p.longest {
					continue
				}
				if one := t.Seconds() / float64(b+1); t <= p.SLO && one <= per[m] {
					per[m], batch[m] = one, b+1
				}
			}
		}
		x.per, x.batch = append(x.per, per), append(x.batch, batch)
	}
}

// configurations are the maximal sets of models, and of stages of the chains that a
// placement is made for, that fit on a device of a kind. Bits of stages are above
// those of models.
func (x *mixed) configurations() {
	p := x.p
	x.configs, x.all, x.bit = nil, nil, make([][]int, len(x.run))
	for k := range p.Kinds {
		q := &Problem{Models: make([]Model, len(p.Models)), Memory: p.Kinds[k].Memory, SLO: p.SLO}
		some := uint32(0)
		for m := range p.Models {
			v := variantOf(p, m, k)
			q.Models[m] = Model{Memory: v.Memory}
			if !math.IsInf(x.per[k][m], 1) {
				q.Models[m].Times = v.Times
				some |= 1 << m
			}
		}
		for c := range x.run {
			for s := range x.run[c].Stages {
				if st := &x.run[c].Stages[s]; st.Kind == k {
					x.bit[c] = append(x.bit[c], len(q.Models))
					q.Models = append(q.Models, Model{Memory: st.Memory, Times: st.Times})
				}
			}
		}
		for _, set := range (placing{q}).configurations() {
			x.configs = append(x.configs, Config{Kind: k, Set: set})
		}
		if some != 0 || slices.ContainsFunc(x.chains, func(c *Chain) bool {
			return slices.ContainsFunc(c.Stages, func(s Stage) bool { return s.Kind == k })
		}) {
			x.all = append(x.all, Config{Kind: k, Set: some})
		}
	}
	for c := range x.run { // bits came kind by kind, stages are in order
		bits, n := make([]int, len(x.run[c].Stages)), 0
		for k := range p.Kinds {
			for s := range x.run[c].Stages {
				if x.run[c].Stages[s].Kind == k {
					bits[s] = x.bit[c][n]
					n++
				}
			}
		}
		x.bit[c] = bits
	}
}

// place finds how many devices of a kind hold which models, and stages of chains:
// all ranges together, the relaxation by column generation and then whole numbers
// over its columns, which are returned, too. On whole devices a range may have to do with a
// cascade that only another one takes on fractions of them: columns of one are those of all.
func (x *mixed) place(ctx context.Context) (placed []Config, columns [][]int, err error) {
	p := x.p
	ranges := upTo(len(p.Edges))
	relaxed := x.newProgram(x.configs, ranges, false, -1)
	relaxed.chains()
	if _, _, err := relaxed.generate(ctx, nil, nil); err != nil {
		return nil, nil, fmt.Errorf("placing models on several kinds: %w", err)
	}
	g := x.newProgram(x.configs, ranges, true, -1)
	g.chains()
	columns = slices.Repeat([][]int{slices.Compact(slices.Sorted(slices.Values(slices.Concat(relaxed.columns...))))}, len(ranges))
	for at, list := range columns {
		for _, i := range list {
			g.column(at, i)
		}
	}
	var limits milp.Options
	if len(x.run) > 0 {
		limits = milp.Options{Gap: chainsGap, MaxNodes: chainsNodes}
	}
	sol, err := solve(ctx, x.solver, g.m, limits)
	if err != nil {
		return nil, nil, fmt.Errorf("placing models on several kinds: %w", err)
	}
	if sol.X == nil {
		return nil, nil, fmt.Errorf("placing models on several kinds: no solution (%v)", sol.Status)
	}
	out := slices.Clone(x.configs)
	for c := range out {
		out[c].Count = int(math.Round(sol.X[g.count[c]]))
	}
	return slices.DeleteFunc(out, func(c Config) bool { return c.Count == 0 }), columns, nil
}

// placements visits all ways to give the devices of every kind maximal sets of models.
func (x *mixed) placements(visit func(placed []Config)) {
	byKind := make([][]Config, len(x.p.Kinds))
	for _, c := range x.configs {
		byKind[c.Kind] = append(byKind[c.Kind], c)
	}
	var fill func(kind int, placed []Config)
	fill = func(kind int, placed []Config) {
		if kind == len(byKind) {
			visit(slices.Clone(placed))
			return
		}
		if len(byKind[kind]) == 0 {
			fill(kind+1, placed)
			return
		}
		counts := make([]int, len(byKind[kind]))
		eachComposition(counts, 0, x.p.Kinds[kind].Devices, func() {
			next := slices.Clone(placed)
			for i, n := range counts {
				if c := byKind[kind][i]; n > 0 {
					c.Count = n
					next = append(next, c)
				}
			}
			fill(kind+1, next)
		})
	}
	fill(0, nil)
}

// few tells whether there are no more placements than a number.
func (x *mixed) few(most int) bool {
	total := 1.0
	for k := range x.p.Kinds {
		if x.p.Kinds[k].Of >= 0 {
			return false // units take another kind's devices
		}
		sets := 0
		for _, c := range x.configs {
			if c.Kind == k {
				sets++
			}
		}
		total *= compositions(x.p.Kinds[k].Devices, sets)
	}
	return total <= float64(most)
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

// Replicas are the devices of a kind that hold a model, numbered within the kind
// configuration by configuration.
func (out *Outcome) Replicas(model, kind int) []int {
	if out.Placement != nil {
		return out.Placement.DevicesOf(model)
	}
	return devicesWith(out.Configs, kind, model)
}

// devicesWith are the devices of a kind that hold a model, numbered configuration by
// configuration.
func devicesWith(configs []Config, kind, model int) (list []int) {
	first := 0
	for _, c := range configs {
		if c.Kind != kind {
			continue
		}
		for d := range c.Count {
			if c.Set&(1<<model) != 0 {
				list = append(list, first+d)
			}
		}
		first += c.Count
	}
	return list
}
