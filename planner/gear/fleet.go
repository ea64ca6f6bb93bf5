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
	Memory  int64   // bytes of a device; 0 means no limit
	Price   float64 // of a device, if the price is minimised
}

// Variant holds the times and the memory of a model on a kind of devices.
type Variant struct {
	Times  []time.Duration // [b-1]: undisturbed time of a batch of b; empty if it was not measured on the kind
	Means  []time.Duration // [b-1]: mean time of a batch of b; if nil, MedianTimes are used
	Memory int64           // bytes
}

// meanTime returns the mean time of a batch.
func (v *Variant) run(batch int) time.Duration {
	if v.Means != nil {
		return v.Means[batch-1]
	}
	return v.Times[batch-1]
}

// planSpace holds what plans are made from: the cascades of a problem, the times of its models on every kind of
// devices, chains, and the configs of each kind. Times on different kinds are unrelated, so loads come from linear
// programs. The duals of each program bound the loads of all other cascades on the placement from below, so few
// programs are solved.
type fleet struct {
	p       *Problem
	solver  milp.Solver
	known   *catalogue  // shared by all solves of the problem
	found   int         // cascades enumerated, before pruning
	list    []Cascade   // those that can keep the SLO
	order   []int       // indexes of cascades, the most accurate first
	reach   [][]float64 // by cascade and model: share of the requests that reach the model
	late    []float64   // by cascade: least share of late requests; nil if late requests are not allowed
	per     [][]float64 // by kind and model; infinite if the model does not run on the kind
	batch   [][]int     // by kind and model: largest batch
	chains  []*Chain    // that members may run as
	run     []*Chain    // chains that a placement is made for
	bit     [][]int     // by chosen chain and stage: the bit of the stage in model sets
	configs []Config    // maximal sets by kind, with counts of 0
	all     []Config    // for the fluid model: of each kind one, with all models that fit on a device alone
}

// newPlanSpace returns a space without cascades.
func newFleet(p *Problem, solver milp.Solver, known *catalogue) *fleet {
	x := &fleet{p: p, solver: solver, known: known}
	x.batch, x.per = speedsOf(p)
	return x
}

// wholeModelSpace returns the space of the cascades that whole models answer in time.
func wholeFleet(ctx context.Context, p *Problem, solver milp.Solver, known *catalogue) (*fleet, error) {
	x := newFleet(p, solver, known)
	x.configurations()
	return x, x.cascades(ctx)
}

// withLimits returns the space for a problem with another limit on batches.
func (x *fleet) within(p *Problem) *fleet {
	y := *x
	y.p = p
	y.batch, y.per = speedsOf(p)
	y.take(x.list)
	y.configurations()
	return &y
}

// setCascades sets the cascades, their order by accuracy, and the shares that reach their models.
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

// solveProgram solves a program. If the context has ended, it returns the context's error.
func solve(ctx context.Context, solver milp.Solver, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	sol, err := solver.Solve(ctx, m, o)
	return sol, cmp.Or(err, ctx.Err())
}

// indices returns the numbers from 0 to n-1.
func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// listCascades sets the cascades that whole models or chains answer in time. It returns an InfeasibleError if
// there are none.
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

// runsWhole reports whether a model runs whole on some kind.
func (x *fleet) whole(m int) bool {
	return slices.ContainsFunc(x.per, func(per []float64) bool { return !math.IsInf(per[m], 1) })
}

// withStages returns the space in which members may also run as chains. minTimes is the least time of a sample in
// stages, by model. The cascades are listed anew only if chains allow other ones than whole models.
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

// fasterElsewhere reports whether one sample of a model takes longer than maxBatchTime on a kind, but not on
// another kind that has devices and memory for it.
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

// setConfigs sets the configs: the maximal sets of models, and of stages of the chosen chains, that fit into the
// memory of a kind. Bits of stages are above those of models.
func (x *fleet) configurations() {
	p := x.p
	x.configs, x.all, x.bit = nil, nil, make([][]int, len(x.run))
	for c, chain := range x.run {
		x.bit[c] = make([]int, len(chain.Stages))
	}

	// For each kind list the memory of its models and stages; -1 if a model does not run on it.
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

		// The maximal sets, and one config with all models for the fluid model.
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

// placeModels returns a placement: how many devices of a kind hold which models and stages. It solves the
// relaxation of all ranges together by column generation, and then the program in whole numbers over the cascades
// found. With whole devices a range may need a cascade that only another range uses with fractions of devices, so
// every range gets the cascades of all.
func (x *fleet) place(ctx context.Context) (placed []Config, err error) {
	p := x.p
	ranges := upTo(len(p.Edges))

	// The relaxation.
	relaxed := x.newProgram(x.configs, ranges, false)
	relaxed.chains()
	if _, _, err := relaxed.generate(ctx, nil); err != nil {
		return nil, fmt.Errorf("placing models: %w", err)
	}

	// Whole numbers of devices.
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

	// Read the counts.
	out := slices.Clone(x.configs)
	for c := range out {
		out[c].Count = int(math.Round(sol.X[g.count[c]]))
	}
	return slices.DeleteFunc(out, func(c Config) bool { return c.Count == 0 }), nil
}

// Gap and number of nodes at which the program that places chains may stop.
const (
	chainsGap   = 1e-4
	chainsNodes = 2000
)

// addChosenChains adds the chosen chains to all ranges. A stage may be on any config that holds it.
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
