package pool

import (
	"cmp"
	"math"
	"slices"
	"time"

	"inferplan/planner/stages"
)

// Pricing finds, at given prices of devices, the template of one model that
// takes least per request: a path over cut positions whose arcs are stages,
// with latency as a resource. Labels hold cost and latency; what a label costs
// at least until the end is bounded by shortest paths in which latency has a
// price as well (a Lagrangian relaxation), for a few such prices. Costs are in
// the units of the relaxation: what the devices for one unit of the model's
// rate cost.

// arcKind is a device kind and share as pricing sees it.
type arcKind struct {
	stages.Choice
	starts  []float64 // nanoseconds: a stage takes the difference of that of its end and that of its start
	ends    []float64 // nil where times are no such differences
	perNS   float64   // cost of one nanosecond of a batch
	perWire float64   // cost of one microsecond of a sample on the NIC
	class   int       // index of the pool's NIC rate
	leaves  []int     // link rates by which a cut can leave it
}

// pricer prices one model at one batch size.
type pricer struct {
	stages.Sums
	n       int
	arcs    []arcKind
	classes []nic             // distinct NICs
	links   []float64         // distinct link rates; below 0: nothing passes
	link    [][]int           // [class][class]: index of the link rate
	xfer    [][]time.Duration // [link][cut]: of a batch
	wire    [][]float64       // [link][cut]: microseconds of a sample
	quick   []float64         // [cut]: least transfer of any link
	grids   []grid
	prices  []float64
}

// nic is what pools of a class have in common: they pass cuts alike.
type nic struct {
	gbps float64
	pool int // where it is apart from all others; -1: any of that rate
}

// nicOf is the class of a pool.
func nicOf(p *Problem, k int) nic {
	c := nic{p.Pools[k].Gbps, -1}
	if p.Apart && c.gbps <= 0 {
		c.pool = k
	}
	return c
}

// linkRate is the rate between pools of two classes; below 0 where nothing passes.
func linkRate(a, b nic) float64 {
	rate := stages.LinkGbps(&stages.Pool{Gbps: a.gbps}, &stages.Pool{Gbps: b.gbps})
	if rate <= 0 && a.pool != b.pool {
		return -1
	}
	return rate
}

// grid is a Lagrangian bound: least cost plus latency at a price, from a cut
// to the end in at most so many stages.
type grid struct {
	mu    float64
	to    [][]float64   // [stages left][cut]
	by    [][][]float64 // [stages left][arc][cut]: when the next stage is this arc
	value float64       // bound on the cost of any template
}

// pricer prepares what does not depend on prices; nil where no batch of this
// size can keep the SLO.
func (p *Problem) pricer(model, batch int) *pricer {
	m := &p.Models[model]
	w := p.Sums(model, batch, m.Budget(batch))
	if w.Budget <= 0 || len(w.Choices) == 0 || w.Rest[0] > w.Budget {
		return nil
	}
	q := &pricer{Sums: w, n: m.NumBlocks()}
	for k := range p.Pools {
		if p.Pools[k].Count > 0 && !slices.Contains(q.classes, nicOf(p, k)) {
			q.classes = append(q.classes, nicOf(p, k))
		}
	}
	q.link = make([][]int, len(q.classes))
	for a := range q.classes {
		for b := range q.classes {
			rate := linkRate(q.classes[a], q.classes[b])
			i := slices.Index(q.links, rate)
			if i < 0 {
				i = len(q.links)
				q.links = append(q.links, rate)
			}
			q.link[a] = append(q.link[a], i)
		}
	}
	q.quick = slices.Repeat([]float64{math.Inf(1)}, q.n+1)
	for _, rate := range q.links {
		xfer, wire := make([]time.Duration, q.n+1), make([]float64, q.n+1)
		for j := 1; j < q.n; j++ {
			if m.CutBytes[j-1] < 0 {
				continue // no cut there
			}
			wire[j] = stages.SampleMicros(m.CutBytes[j-1], rate)
			xfer[j] = time.Duration(math.Round(wire[j] * float64(batch) * 1000))
			if rate < 0 {
				xfer[j] = stages.Never
			}
			q.quick[j] = min(q.quick[j], float64(xfer[j]))
		}
		q.xfer, q.wire = append(q.xfer, xfer), append(q.wire, wire)
	}
	for _, o := range w.Choices {
		a := arcKind{Choice: o, class: slices.Index(q.classes, nicOf(p, o.Pool))}
		if o.Plain() {
			a.starts, a.ends = o.Times.Differences()
		}
		for _, l := range q.link[a.class] {
			if !slices.Contains(a.leaves, l) {
				a.leaves = append(a.leaves, l)
			}
		}
		q.arcs = append(q.arcs, a)
	}
	return q
}

// set takes the prices: cost of a device of each pool for one unit of rate.
func (q *pricer) set(perDevice []float64) {
	q.prices = perDevice
	for i := range q.arcs {
		a := &q.arcs[i]
		a.perNS = perDevice[a.Pool] / (float64(a.Share) * float64(q.Batch) * 1e9)
		a.perWire = 0
		if pool := &q.Problem.Pools[a.Pool]; pool.Gbps > 0 {
			a.perWire = perDevice[a.Pool] * float64(pool.PerNode) / 1e6
		}
	}
	q.grids = q.grids[:0]
}

// bound makes the Lagrangian bound for a price of latency (cost per
// nanosecond), and the path that it is of.
func (q *pricer) bound(mu float64) (grid, []stages.Stage) {
	most := q.Problem.MaxPartitions
	g := grid{mu: mu}
	type step struct{ arc, cut int32 }
	next := make([][]step, most+1)
	g.to = append(g.to, slices.Repeat([]float64{math.Inf(1)}, q.n+1))
	g.by = append(g.by, nil)
	for s := 1; s <= most; s++ {
		to, st := slices.Repeat([]float64{math.Inf(1)}, q.n+1), make([]step, q.n+1)
		by := make([][]float64, len(q.arcs))
		after := slices.Repeat([]float64{math.Inf(1)}, q.n) // the rest from each cut, crossed the quickest way
		for j := 1; s > 1 && j < q.n; j++ {
			after[j] = mu*q.quick[j] + g.to[s-1][j]
		}
		for ai := range q.arcs {
			a := &q.arcs[ai]
			col, cuts := q.nextStage(a, mu, after)
			for j := q.n - 1; j >= 0; j-- {
				if col[j] < to[j] {
					to[j], st[j] = col[j], step{int32(ai), cuts[j]}
				}
			}
			by[ai] = col
		}
		g.to, g.by, next[s] = append(g.to, to), append(g.by, by), st
	}
	g.value = g.to[most][0] - mu*float64(q.Budget)
	var path []stages.Stage
	for s, j := most, 0; j < q.n; s-- {
		st := next[s][j]
		a := &q.arcs[st.arc]
		path = append(path, stages.Stage{First: j, Last: int(st.cut), Pool: a.Pool, Share: a.Share})
		j = int(st.cut)
	}
	return g, path
}

// nextStage is the least cost from each cut to the end when the next stage is on
// an arc, at a price of latency, and where that stage ends: at the end of the
// model, or at a cut, from which on the rest costs what after says.
func (q *pricer) nextStage(a *arcKind, mu float64, after []float64) (cost []float64, end []int32) {
	cost, end = make([]float64, q.n), make([]int32, q.n)
	per := a.perNS + mu
	if a.ends == nil {
		of := func(first, last int) float64 {
			return a.perNS*float64(a.Run(first, last)) + mu*float64(a.Times.Of(first, last))
		}
		for j := range cost {
			cost[j], end[j] = of(j, q.n), int32(q.n)
			for k := j + 1; k < q.n; k++ {
				if v := of(j, k) + after[k]; v < cost[j] {
					cost[j], end[j] = v, int32(k)
				}
			}
		}
		return cost, end
	}
	best, cut := per*a.ends[q.n], int32(q.n) // for every start before
	for j := q.n - 1; j >= 0; j-- {
		cost[j], end[j] = best-per*a.starts[j], cut
		if j > 0 {
			if v := per*a.ends[j] + after[j]; v < best {
				best, cut = v, int32(j)
			}
		}
	}
	return cost, end
}

// relaxed looks for the price of latency with the best bound, keeps a few
// grids around it, and returns the best template met on the way, if any.
func (q *pricer) relaxed() (best *stages.Template, cost float64) {
	cost = math.Inf(1)
	try := func(mu float64) grid {
		g, path := q.bound(mu)
		if t := q.template(path); t != nil {
			if c := q.cost(t); c < cost {
				best, cost = t, c
			}
		}
		return g
	}
	zero := try(0)
	q.grids = append(q.grids, zero)
	// The bound is concave in mu. A price at which latency alone costs as much
	// as the whole template is a scale to start from.
	scale := max(zero.to[q.Problem.MaxPartitions][0], 1e-12) / float64(q.Budget)
	lo, hi := 0.0, scale
	high := try(hi)
	for range 20 {
		further := try(hi * 3)
		if further.value <= high.value {
			break
		}
		lo, hi, high = hi, hi*3, further
	}
	hi *= 3
	const ratio = 0.618033988749895
	a, b := hi-ratio*(hi-lo), lo+ratio*(hi-lo)
	ga, gb := try(a), try(b)
	for range 8 {
		if ga.value >= gb.value {
			hi, b, gb = b, a, ga
			a = hi - ratio*(hi-lo)
			ga = try(a)
		} else {
			lo, a, ga = a, b, gb
			b = lo + ratio*(hi-lo)
			gb = try(b)
		}
	}
	q.grids = append(q.grids, ga, gb, high)
	slices.SortStableFunc(q.grids, func(x, y grid) int { return cmp.Compare(y.value, x.value) })
	return best, cost
}

// least is what every template costs at least, by the grids.
func (q *pricer) least() float64 { return q.grids[0].value }

// template makes a template of stages; nil where it breaks the SLO, the
// memory or a cut that does not exist.
func (q *pricer) template(path []stages.Stage) *stages.Template {
	t := &stages.Template{Model: q.Index, Batch: q.Batch, Stages: slices.Clone(path)}
	for i := range t.Stages {
		s := &t.Stages[i]
		ai := slices.IndexFunc(q.arcs, func(a arcKind) bool { return a.Pool == s.Pool && a.Share == s.Share })
		if ai < 0 || s.Last < q.n && q.Model.CutBytes[s.Last-1] < 0 {
			return nil
		}
		a := &q.arcs[ai]
		s.Infer, s.Run = a.Times.Of(s.First, s.Last), a.Run(s.First, s.Last)
		s.Need = q.Weights[s.Last] - q.Weights[s.First] + a.Memory
		if !q.fits(a, s.Need) {
			return nil
		}
		s.Xfer = 0
		if s.Last < q.n {
			s.Xfer = q.Problem.XferTime(s.Pool, t.Stages[i+1].Pool, q.Model.CutBytes[s.Last-1], q.Batch)
		}
		t.Latency += s.Infer + s.Xfer
	}
	if t.Latency > q.Budget {
		return nil
	}
	for i := range t.Stages {
		t.Stages[i].Rate = q.Problem.StageRate(t, i)
	}
	return t
}

func (q *pricer) fits(a *arcKind, need int64) bool {
	pool := &q.Problem.Pools[a.Pool]
	return pool.Memory <= 0 || need <= pool.Memory/int64(a.Share)
}

// cost is what one unit of rate through t costs.
func (q *pricer) cost(t *stages.Template) float64 {
	c := 0.0
	for i := range t.Stages {
		s := &t.Stages[i]
		c += q.prices[s.Pool] / (float64(s.Share) * s.Rate)
	}
	return c
}
