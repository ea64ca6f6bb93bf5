package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// ErrKinds means that DART-r was asked to pair more than two device kinds.
var ErrKinds = errors.New("DART-r pairs one device of each of two kinds")

// DARTr plans as the baseline of that name in PPipe: every model gets the
// devices that it has in a plan without partitioning, and an even share of
// the idle ones of each kind, rounded down. On those it repeats the best use of
// one device of each kind (a chain of two stages, or each alone) as often as
// there are pairs; what is left of the more numerous kind runs whole models.
// Devices are whole. The bound is that of pooled pipelines: the gap is what
// pooling could bring at most.
//
// Plans without partitioning of one objective divide the devices differently.
// Those of the fewest devices, of the largest weighted sum, and those are tried in
// which one model has more devices of a kind than the fewest that it needs there: the
// better objective counts, then the weighted sum of rates, then the fewer devices.
func DARTr(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	return atFloors(p, func(p *Problem) (*Outcome, error) { return repeated(ctx, p, s, o) })
}

// repeated is DARTr for floors as they are.
func repeated(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	var kinds []int
	for k := range p.Pools {
		if p.Pools[k].Count > 0 {
			kinds = append(kinds, k)
		}
		if p.Pools[k].Time {
			return nil, fmt.Errorf("%w: %s is shared in time", ErrKinds, p.Pools[k].Kind)
		}
	}
	if len(kinds) > 2 {
		return nil, fmt.Errorf("%w: the cluster has %d", ErrKinds, len(kinds))
	}
	x, err := newSearch(ctx, p, s, o, throughput{})
	if err != nil {
		return nil, err
	}
	k := &pairing{x.catalogue}
	var out *Adopted
	var done []Phase
	for i, baseline := range []func(context.Context, *Problem, milp.Solver, Options) (*Outcome, error){leastNP, mostNP} {
		np, err := baseline(ctx, p, s, o)
		if err != nil {
			return nil, err
		}
		done = append(done, np.Phases...)
		has := k.devicesOf(np)
		splits := [][][]int{has}
		if i == 0 {
			splits = append(splits, k.more(has)...)
		}
		for _, split := range splits {
			next, err := Adopt(p, k.pairs(k.deal(split)))
			if err != nil {
				return nil, fmt.Errorf("repeating pairs of devices: %w", err)
			}
			if out == nil || k.better(&next.Outcome, &out.Outcome) {
				out = next
			}
		}
	}
	out.Bound = max(x.theta(x.proven()), out.Value)
	out.Templates, out.Phases = len(x.templates), append(done, x.out.Phases...)
	out.StoppedBy = milp.StoppedByWork
	if ctx.Err() != nil {
		out.StoppedBy = milp.StoppedByInterrupt
	}
	return &out.Outcome, nil
}

// pairing gives devices to models, and repeats pairs of them.
type pairing struct{ *catalogue }

// better compares plans by objective, weighted sum of rates and devices.
func (k *pairing) better(a, b *Outcome) bool {
	sum := func(o *Outcome) (rps, devices float64) {
		for d, v := range o.RPS {
			rps += v * k.Models[d].Weight
		}
		for i := range o.Pipelines {
			for _, v := range o.Pipelines[i].Devices {
				devices += v
			}
		}
		return rps, devices
	}
	if math.Abs(a.Value-b.Value) > sameValue*b.Value {
		return a.Value > b.Value
	}
	as, ad := sum(a)
	bs, bd := sum(b)
	if math.Abs(as-bs) > sameValue*bs {
		return as > bs
	}
	return ad < bd
}

// devicesOf is how many devices the models have in a plan: [model][pool].
func (k *pairing) devicesOf(np *Outcome) [][]int {
	out := make([][]int, len(k.Models))
	for d := range out {
		out[d] = make([]int, len(k.Pools))
	}
	for i := range np.Pipelines {
		pl := &np.Pipelines[i]
		for si := range pl.Stages {
			out[pl.Model][pl.Stages[si].Pool] += pl.Replicas[si]
		}
	}
	return out
}

// idle is how many devices of a pool no model has.
func (k *pairing) idle(has [][]int, pool int) int {
	n := k.Pools[pool].Count
	for d := range has {
		n -= has[d][pool]
	}
	return n
}

// mostSplits bounds how many numbers of more devices are tried for a model and kind.
const mostSplits = 128

// more are the splits in which one model has more devices of a kind than in one, where
// it has some: any plan without partitioning may give them to it.
func (k *pairing) more(has [][]int) [][][]int {
	var out [][][]int
	for d := range has {
		for i, n := range has[d] {
			if n == 0 {
				continue
			}
			idle := k.idle(has, i)
			for step, extra := (idle+mostSplits-1)/mostSplits, 0; extra < idle; {
				extra = min(extra+step, idle)
				split := slices.Clone(has)
				split[d] = slices.Clone(has[d])
				split[d][i] += extra
				out = append(out, split)
			}
		}
	}
	return out
}

// deal gives every model an even share of the devices that no model has.
func (k *pairing) deal(has [][]int) [][]int {
	out := make([][]int, len(has))
	for d := range out {
		out[d] = slices.Clone(has[d])
		for i := range k.Pools {
			out[d][i] += k.idle(has, i) / len(k.Models)
		}
	}
	return out
}

// pairs uses the devices of each model one pair at a time.
func (k *pairing) pairs(devices [][]int) []Given {
	var out []Given
	use := func(i, n int) {
		if i < 0 || n == 0 {
			return
		}
		t := &k.templates[i]
		g := Given{Model: t.Model, Batch: t.Batch}
		for _, s := range t.Stages {
			g.Stages = append(g.Stages, GivenStage{First: s.First, Last: s.Last, Pool: s.Pool, Share: 1, Replicas: n})
		}
		out = append(out, g)
	}
	for d := range k.Models {
		alone := slices.Repeat([]int{-1}, len(k.Pools)) // best whole model per kind
		chain := -1                                     // best chain of two kinds
		better := func(at *int, i int) {
			if *at < 0 || slowest(&k.templates[i]) > slowest(&k.templates[*at]) {
				*at = i
			}
		}
		for i := range k.templates {
			t := &k.templates[i]
			if t.Model != d || slices.ContainsFunc(t.Stages, func(s stages.Stage) bool { return s.Share != 1 }) {
				continue
			}
			switch {
			case len(t.Stages) == 1:
				better(&alone[t.Stages[0].Pool], i)
			case len(t.Stages) == 2 && t.Stages[0].Pool != t.Stages[1].Pool:
				better(&chain, i)
			}
		}
		left := slices.Clone(devices[d])
		if chain >= 0 {
			a, b := k.templates[chain].Stages[0].Pool, k.templates[chain].Stages[1].Pool
			apart := 0.0
			for _, i := range []int{a, b} {
				if alone[i] >= 0 {
					apart += slowest(&k.templates[alone[i]])
				}
			}
			if n := min(left[a], left[b]); slowest(&k.templates[chain]) > apart {
				use(chain, n)
				left[a] -= n
				left[b] -= n
			}
		}
		for i, n := range left {
			use(alone[i], n)
		}
	}
	return out
}

// slowest is the rate of one replica of each stage.
func slowest(t *stages.Template) float64 {
	rate := t.Stages[0].Rate
	for i := range t.Stages {
		rate = min(rate, t.Stages[i].Rate)
	}
	return rate
}
