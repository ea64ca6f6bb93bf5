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

// Chain is a member that runs in stages. A replica of it is one device for each.
type Chain struct {
	Model   int
	Batch   int           // largest
	Latency time.Duration // of that batch, with what crosses between the stages
	Stages  []Stage
}

// Stage is a part of a member on a kind of devices.
type Stage struct {
	Kind        int
	First, Last int // blocks, half-open
	Memory      int64
	Times       []time.Duration // [b-1]: undisturbed
	Means       []time.Duration // [b-1]: on average
	Bytes       int64           // of a sample that cross to the next stage
	Transfer    []time.Duration // [b-1]: there; nil for the last

	per      float64 // seconds of a device per sample, in the largest batch
	wire     float64 // seconds of a NIC per sample, to the next stage
	from, to bool    // whether that takes a NIC of this kind, and of the next stage's
}

// PlacedChain is a chain on devices: Devices[stage] are numbered within the stage's
// kind, ascending. There are as many replicas as the stage with the most has
// devices; every other has a whole fraction of that, each in replicas that follow
// each other.
type PlacedChain struct {
	Chain   *Chain
	Devices [][]int
}

// key names the member, its batch, its stages and their devices.
func (c *PlacedChain) key() string {
	key := fmt.Sprint(c.Chain.Model, "x", c.Chain.Batch, c.Devices)
	for i := range c.Chain.Stages {
		s := &c.Chain.Stages[i]
		key += fmt.Sprint(" ", s.Kind, ":", s.First, "-", s.Last)
	}
	return key
}

// Replicas is the number of a chain's replicas.
func (c *PlacedChain) Replicas() int {
	most := 0
	for _, list := range c.Devices {
		most = max(most, len(list))
	}
	return most
}

// device is the device of a stage in a replica.
func (c *PlacedChain) device(stage, replica int) int {
	list := c.Devices[stage]
	return list[replica/(c.Replicas()/len(list))]
}

// errTooManyChains says what to do.
var errTooManyChains = errors.New("too many ways to cut the members into stages: fewer blocks (--blocks) or stages (--max-partitions)")

// chainsOf are the ways to run members in stages within the SLO, by their templates,
// and the least time in which a sample passes each member in
// stages; 0: it does not.
func chainsOf(p *Problem) (list []*Chain, least []time.Duration, err error) {
	least = make([]time.Duration, len(p.Models))
	if p.Blocks == nil || p.Blocks.MaxPartitions < 2 {
		return nil, least, nil
	}
	b := *p.Blocks
	b.Models = slices.Clone(b.Models)
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

// needless tells whether two stages that follow each other would do as one: on one
// kind a second stage only helps where memory is short.
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

func newChain(b *stages.Problem, m int, t *stages.Template) *Chain {
	c := &Chain{Model: m, Batch: t.Batch, Latency: t.Latency}
	for i := range t.Stages {
		ts := &t.Stages[i]
		s := Stage{Kind: ts.Pool, First: ts.First, Last: ts.Last, Memory: ts.Need, per: ts.Run.Seconds() / float64(t.Batch)}
		for n := 1; n <= t.Batch; n++ {
			e := b.Models[m].Costs[ts.Pool][0].Expect(n)
			s.Times, s.Means = append(s.Times, e.Median(ts.First, ts.Last)), append(s.Means, e.Mean(ts.First, ts.Last))
		}
		if i+1 < len(t.Stages) {
			next := t.Stages[i+1].Pool
			s.Bytes = b.Models[m].CutBytes[ts.Last-1]
			s.wire, s.from, s.to = b.LinkTime(ts.Pool, next, s.Bytes)
			if ts.Pool == next && b.Pools[next].PerNode > 1 {
				s.from, s.to = false, false // both may be behind one NIC
			}
			for n := 1; n <= t.Batch; n++ {
				s.Transfer = append(s.Transfer, b.XferTime(ts.Pool, next, s.Bytes, n))
			}
		}
		c.Stages = append(c.Stages, s)
	}
	return c
}

// along tells whether two chains are of one member over the same kinds, in order.
func (c *Chain) along(o *Chain) bool {
	return c.Model == o.Model && slices.EqualFunc(c.Stages, o.Stages, func(a, b Stage) bool { return a.Kind == b.Kind })
}

// replaces tells whether nothing is lost by running another chain as this one: no
// stage takes more time or memory, and no cut more of a NIC.
func (c *Chain) replaces(o *Chain) bool {
	for i := range c.Stages {
		a, b := &c.Stages[i], &o.Stages[i]
		if a.per > b.per || a.Memory > b.Memory || a.wire > b.wire {
			return false
		}
	}
	return true
}

// worthwhileChains are those within a latency that no other replaces. Of equal ones
// the one of least latency stands.
func worthwhileChains(list []*Chain, within time.Duration) []*Chain {
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

// Of the chains that a plan is tried with: how many parts a kind's devices hold at
// most beside whole members, of how many items its sets are made, and how many sets
// there are.
const (
	maxParts = 6
	maxItems = 14
	maxSets  = 120
)

// inUse are, of every member and sequence of kinds, the chain that the relaxation
// makes the most use of, the most used first. use is by chain.
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

// forMemory are chains along which members use devices that they do not fit on: of
// every sequence of kinds the one that carries most on all devices, the most first.
// The relaxation, which knows fractions of devices, makes no use of them where the
// member fits elsewhere but then nothing else does.
func (x *fleet) forMemory() []*Chain {
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

// useChains makes a placement's chains of a list, the first first, as many as leave its
// program small.
func (x *fleet) useChains(list []*Chain) {
	x.run = nil
	for _, c := range list {
		if slices.ContainsFunc(x.run, c.along) {
			continue
		}
		x.run = append(x.run, c)
		parts, small := make([]int, len(x.p.Kinds)), true
		for _, o := range x.run {
			for s := range o.Stages {
				k := o.Stages[s].Kind
				parts[k]++
				small = small && parts[k] <= max(2, min(maxParts, maxItems-len(x.p.Models)))
			}
		}
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

// shapes are numbers of devices by stage, as many as there are at most, that a chain
// can have: every stage a whole fraction of the one with the most. Those that
// another has no fewer of anywhere are left out; the widest comes first.
func (c *Chain) shapes(most []int) [][]int {
	var out [][]int
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
