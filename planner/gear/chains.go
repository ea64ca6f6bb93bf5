package gear

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/planner/stages"
	"inferplan/solver/pareto"
)

// Chain is a member cut into stages. A replica of it has one device per stage.
type Chain struct {
	Model   int           // index of the member
	Batch   int           // largest batch
	Latency time.Duration // of a batch of MaxBatch, with the transfers between stages
	Stages  []Stage
}

// Stage is a range of a member's blocks on a kind of devices.
type Stage struct {
	Kind        int             // index of the kind
	First, Last int             // blocks, half-open
	Memory      int64           // bytes on the device
	Times       []time.Duration // [b-1]: undisturbed time of a batch of b
	Means       []time.Duration // [b-1]: mean time of a batch of b
	Bytes       int64           // per sample, to the next stage
	Transfer    []time.Duration // [b-1]: to the next stage; nil for the last stage

	per      float64 // device seconds per sample, in the largest batch
	wire     float64 // NIC seconds per sample, to the next stage
	from, to bool    // whether the transfer occupies a NIC of this kind, and one of the next stage's kind
}

// PlacedChain is a chain on devices. Devices[stage] are numbers within the stage's kind, ascending. The chain has
// as many replicas as its widest stage has devices. Every other stage has a divisor of that number, and each of
// its devices serves consecutive replicas.
type PlacedChain struct {
	Chain   *Chain
	Devices [][]int
}

// key returns a text that is equal for chains of the same member, batch size, stages and devices.
func (c *PlacedChain) key() string {
	key := fmt.Sprint(c.Chain.Model, "x", c.Chain.Batch, c.Devices)
	for i := range c.Chain.Stages {
		s := &c.Chain.Stages[i]
		key += fmt.Sprint(" ", s.Kind, ":", s.First, "-", s.Last)
	}
	return key
}

// Replicas returns the number of the chain's replicas.
func (c *PlacedChain) Replicas() int {
	most := 0
	for _, list := range c.Devices {
		most = max(most, len(list))
	}
	return most
}

// deviceOf returns the device that runs a stage of a replica.
func (c *PlacedChain) device(stage, replica int) int {
	list := c.Devices[stage]
	return list[replica/(c.Replicas()/len(list))]
}

// errTooManyChains is returned if a member can be cut in too many ways. It names the options that help.
var errTooManyChains = errors.New("too many ways to cut the members into stages: fewer blocks (--blocks) or stages (--max-partitions)")

// enumerateChains returns the ways to run members in stages within the SLO, and by member the least time in which
// one sample passes it in stages. That time is 0 if the member cannot be cut.
func chainsOf(p *Problem) (list []*Chain, least []time.Duration, err error) {
	least = make([]time.Duration, len(p.Models))
	if p.Blocks == nil || p.Blocks.MaxPartitions < 2 {
		return nil, least, nil
	}
	b := *p.Blocks
	b.Models = slices.Clone(b.Models)

	// Make the templates of each member, without a margin, and turn those of several stages into chains.
	for m := range b.Models {
		one := &b.Models[m]
		one.SLO, one.Margin, one.Build, one.EveryBatch = p.SLO, 0, 0, false
		if one.NumBlocks() < 2 {
			continue
		}
		templates, _, err := b.Templates(m)
		if errors.Is(err, stages.ErrTooMany) {
			return nil, nil, fmt.Errorf("%s: %w", p.Models[m].Name, errTooManyChains)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cutting members into stages: %w", err)
		}
		some := false
		for i := range templates {
			if t := &templates[i]; len(t.Stages) > 1 && !needless(&b, t) {
				list, some = append(list, newChain(&b, m, t)), true
			}
		}
		if some {
			if t, ok := b.Fastest(m, 1); ok {
				least[m] = t
			}
		}
	}
	return list, least, nil
}

// hasNeedlessCut reports whether two consecutive stages could be one. On the same kind of devices a second stage
// only helps if memory is short.
func needless(b *stages.Problem, t *stages.Template) bool {
	for i := 1; i < len(t.Stages); i++ {
		before, s := &t.Stages[i-1], &t.Stages[i]
		if before.Pool != s.Pool {
			continue
		}
		own := b.Models[t.Model].WeightBytes(s.First, s.Last)
		if limit := b.Pools[s.Pool].Memory; limit == 0 || before.Need+own <= limit {
			return true
		}
	}
	return false
}

// newChain returns the chain of member m that a template describes.
func newChain(b *stages.Problem, m int, t *stages.Template) *Chain {
	c := &Chain{Model: m, Batch: t.Batch, Latency: t.Latency}
	for i := range t.Stages {
		ts := &t.Stages[i]
		s := Stage{Kind: ts.Pool, First: ts.First, Last: ts.Last, Memory: ts.Need, per: ts.Run.Seconds() / float64(t.Batch)}
		for n := 1; n <= t.Batch; n++ {
			e := b.Models[m].Costs[ts.Pool][0].Expect(n)
			s.Times, s.Means = append(s.Times, e.Median(ts.First, ts.Last)), append(s.Means, e.Mean(ts.First, ts.Last))
		}

		// The transfer to the next stage.
		if i+1 < len(t.Stages) {
			next := t.Stages[i+1].Pool
			s.Bytes = b.Models[m].CutBytes[ts.Last-1]
			s.wire, s.from, s.to = b.LinkTime(ts.Pool, next, s.Bytes)
			if ts.Pool == next && b.Pools[next].PerNode > 1 {
				s.from, s.to = false, false // both devices may share one NIC
			}
			for n := 1; n <= t.Batch; n++ {
				s.Transfer = append(s.Transfer, b.XferTime(ts.Pool, next, s.Bytes, n))
			}
		}
		c.Stages = append(c.Stages, s)
	}
	return c
}

// sameRoute reports whether two chains are of one member and run over the same kinds in the same order.
func (c *Chain) along(o *Chain) bool {
	return c.Model == o.Model && slices.EqualFunc(c.Stages, o.Stages, func(a, b Stage) bool { return a.Kind == b.Kind })
}

// dominates reports whether no stage of c takes more time or memory than that of another chain, and no cut more
// NIC time. The chains have the same route.
func (c *Chain) replaces(o *Chain) bool {
	for i := range c.Stages {
		a, b := &c.Stages[i], &o.Stages[i]
		if a.per > b.per || a.Memory > b.Memory || a.wire > b.wire {
			return false
		}
	}
	return true
}

// undominatedChains returns the chains of at most a latency that no other on their route dominates. Of equal
// chains it keeps the one of least latency.
func worthwhileChains(list []*Chain, within time.Duration) []*Chain {
	// Group the chains by route.
	var groups [][]*Chain
	for _, c := range list {
		if c.Latency > within {
			continue
		}
		at := slices.IndexFunc(groups, func(g []*Chain) bool { return g[0].along(c) })
		if at < 0 {
			at, groups = len(groups), append(groups, nil)
		}
		groups[at] = append(groups[at], c)
	}

	// In each group keep the undominated ones, by rising latency.
	var out []*Chain
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b *Chain) int { return cmp.Compare(a.Latency, b.Latency) })
		var kept []*Chain
		for _, c := range g {
			if !slices.ContainsFunc(kept, func(k *Chain) bool { return k.replaces(c) }) {
				kept = append(slices.DeleteFunc(kept, c.replaces), c)
			}
		}
		out = append(out, kept...)
	}
	return out
}

// Limits on the chains of one placement: stages that devices of a kind hold beside whole members, members and
// stages from which the sets of a kind are made, and sets of all kinds.
const (
	maxParts = 6
	maxItems = 14
	maxSets  = 120
)

// mostUsedChains returns, for every member and route, the chain that the relaxation uses most, by falling use.
// chainUse is by chain.
func (x *fleet) inUse(use []float64) []*Chain {
	order := make([]int, 0, len(use))
	for i, u := range use {
		if u > 1e-6 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(use[b], use[a]) })
	var out []*Chain
	for _, i := range order {
		if c := x.chains[i]; !slices.ContainsFunc(out, c.along) {
			out = append(out, c)
		}
	}
	return out
}

// chainsForMemory returns chains along which members use devices that they do not fit on whole: of every route the
// chain with the highest throughput on all devices, by falling throughput. The relaxation knows fractions of
// devices, so it does not use such a chain if the member fits on other devices but then leaves no room there.
func (x *fleet) forMemory() []*Chain {
	// throughput returns the samples per second of a chain if it had all devices to itself.
	carries := func(c *Chain) float64 {
		parts := make([]int, len(x.p.Kinds))
		for s := range c.Stages {
			parts[c.Stages[s].Kind]++
		}
		least := math.Inf(1)
		for s := range c.Stages {
			k := c.Stages[s].Kind
			least = min(least, float64(x.p.Kinds[k].Devices)/float64(parts[k])/c.Stages[s].per)
		}
		return least
	}

	// Keep the best chain of each route.
	var out []*Chain
	for _, c := range x.chains {
		if !slices.ContainsFunc(c.Stages, func(s Stage) bool { return math.IsInf(x.per[s.Kind][c.Model], 1) }) {
			continue
		}
		if at := slices.IndexFunc(out, c.along); at < 0 {
			out = append(out, c)
		} else if carries(c) > carries(out[at]) {
			out[at] = c
		}
	}
	slices.SortStableFunc(out, func(a, b *Chain) int { return cmp.Compare(carries(b), carries(a)) })
	return out
}

// chooseChains sets chosenChains to the first of the candidates that keep the program of the placement small, at
// most one for each route.
func (x *fleet) useChains(list []*Chain) {
	x.run = nil
	for _, c := range list {
		if slices.ContainsFunc(x.run, c.along) {
			continue
		}

		// Add the chain, and count the stages on each kind.
		x.run = append(x.run, c)
		parts, small := make([]int, len(x.p.Kinds)), true
		for _, o := range x.run {
			for s := range o.Stages {
				k := o.Stages[s].Kind
				parts[k]++
				small = small && parts[k] <= max(2, min(maxParts, maxItems-len(x.p.Models)))
			}
		}

		// Take the chain back if there are too many stages or sets.
		if small {
			x.configurations()
			small = len(x.configs) <= maxSets || len(x.run) == 1
		}
		if !small {
			x.run = x.run[:len(x.run)-1]
		}
	}
	x.configurations()
}

// stageShapes returns the numbers of devices, by stage, that a chain may have. maxDevices limits each. Every
// number divides that of the widest stage. A shape that is nowhere wider than another is left out. The shape of
// the highest throughput is first.
func (c *Chain) shapes(most []int) [][]int {
	var out [][]int

	// For each number of replicas, give every stage the largest divisor that its devices allow.
	for n := slices.Max(most); n > 0; n-- {
		shape := make([]int, len(most))
		for s := range shape {
			for k := min(n, most[s]); k > 0; k-- {
				if n%k == 0 {
					shape[s] = k
					break
				}
			}
		}
		covered := func(o []int) bool { return pareto.NoMore(shape, o) }
		if slices.Max(shape) == n && slices.Min(shape) > 0 && !slices.ContainsFunc(out, covered) {
			out = append(out, shape)
		}
	}

	// Sort by the throughput of the slowest stage.
	width := func(shape []int) float64 {
		w := math.Inf(1)
		for s, n := range shape {
			w = min(w, float64(n)/c.Stages[s].per)
		}
		return w
	}
	slices.SortStableFunc(out, func(a, b []int) int { return cmp.Compare(width(b), width(a)) })
	return out
}
