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

// ErrKinds is returned when DART-r is asked to pair more than two device kinds, or time-shared ones.
var ErrKinds = errors.New("DART-r pairs one device of each of two kinds")

// DARTr plans as the baseline DART-r of PPipe. Every model gets the devices that it has in a plan without
// partitioning, and an even share of the idle ones of each kind, rounded down. On those it repeats the best use
// of one device of each kind (a chain of two stages, or each alone) as often as there are pairs. The remaining
// devices of the more numerous kind run whole models. Devices are whole. The bound is that of pooled pipelines:
// the gap is the most that pooling could bring.
//
// Plans without partitioning that reach the same objective divide the devices differently. DARTr tries the one
// of the fewest devices, the one of the largest weighted sum, and divisions in which one model has more devices
// of a kind than the fewest that it needs. It takes the best plan by objective, then by weighted sum of rates,
// then by fewer devices.
func DARTr(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	return atFloors(p, func(p *Problem) (*Outcome, error) { return repeated(ctx, p, s, o) })
}

// planDARTr is DARTr with the floors as they are.
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

	// Try the divisions of both plans without partitioning.
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

	// The bound of pooled pipelines, and the work of all solves.
	out.Bound = max(x.theta(x.proven()), out.Value)
	out.Templates, out.Phases = len(x.templates), append(done, x.out.Phases...)
	out.StoppedBy = milp.StoppedByWork
	if ctx.Err() != nil {
		out.StoppedBy = milp.StoppedByInterrupt
	}
	return &out.Outcome, nil
}

// devicePairing divides devices among models, and repeats pairs of them.
type pairing struct{ *catalogue }

// isBetter reports whether plan a is better than b by objective, weighted sum of rates and devices, in this
// order.
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

// devicesOf returns how many devices the models have in a plan: [model][pool].
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

// idleDevices returns how many devices of a pool no model has.
func (k *pairing) idle(has [][]int, pool int) int {
	n := k.Pools[pool].Count
	for d := range has {
		n -= has[d][pool]
	}
	return n
}

// maxSplits bounds how many numbers of additional devices are tried for a model and kind.
const mostSplits = 128

// largerSplits returns the divisions in which one model has more devices of a kind that it already uses. Any
// plan without partitioning may give it these.
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

// dealIdle gives every model an even share of the devices that no model has, rounded down.
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

// pairPipelines uses the devices of each model one pair at a time, and returns the pipelines.
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
		alone := slices.Repeat([]int{-1}, len(k.Pools)) // by pool: best whole model
		chain := -1                                     // best chain of two kinds
		better := func(at *int, i int) {
			if *at < 0 || slowest(&k.templates[i]) > slowest(&k.templates[*at]) {
				*at = i
			}
		}

		// Find the best whole model of each kind, and the best chain.
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

		// Use chains, if one carries more than its two devices do with whole models. Then whole models.
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

// pipelineRate returns the rate that one replica of each stage carries.
func slowest(t *stages.Template) float64 {
	rate := t.Stages[0].Rate
	for i := range t.Stages {
		rate = min(rate, t.Stages[i].Rate)
	}
	return rate
}
