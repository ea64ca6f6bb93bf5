package vqueue

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
)

// sync brings the problem up to the time: which models are loaded, when queues
// start, and what changes of models take.
func (p *Policy) sync(now time.Duration) {
	p.problem.Now = seconds(now)
	for q := range p.instances {
		in, def := &p.instances[q], &p.problem.Queues[q]
		def.Model, def.Start = in.loaded, seconds(now)
		drain := 0.0
		if in.loaded >= 0 {
			model := p.someModel(in.loaded)
			drain = seconds(p.stay(in, model))
			if est := p.own.Estimator(p.problem.Kinds, model, false, def.Kind); est.Batch > 0 && len(in.running) < int(est.Batch) {
				// What fits the batch starts at once.
				each, _ := est.Work(1)
				def.Start -= (est.Batch - float64(len(in.running))) * each
			}
		}
		if in.coming >= 0 {
			def.Model = in.coming
			def.Start = max(def.Start, seconds(in.since+p.loadTime(in, in.coming)))
		}
		for n := range def.Setup {
			def.Setup[n] = drain + seconds(p.loadTime(in, int32(n)))
			if in.down || !p.may(int32(n), in.device) {
				def.Setup[n] = never
			}
		}
	}
	p.state.Refresh()
}

// someModel is a served model of a network.
func (p *Policy) someModel(network int32) int32 {
	for m := range p.t.Models {
		if p.network(int32(m)) == network {
			return int32(m)
		}
	}
	return 0
}

// may tells whether a device may serve a network.
func (p *Policy) may(network, device int32) bool {
	return p.own.Only == nil || slices.Contains(p.own.Only[network], device)
}

// Search implements policy.Searcher.
func (p *Policy) Search(now time.Duration, _ int32) func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
	p.plans++
	problem := p.problem
	problem.Groups, problem.Costs = slices.Clone(p.problem.Groups), slices.Clone(p.problem.Costs)
	problem.Queues = slices.Clone(p.problem.Queues)
	for q := range problem.Queues {
		problem.Queues[q].Setup = slices.Clone(problem.Queues[q].Setup)
	}
	gens := make([]int32, len(p.groups))
	for g := range gens {
		gens[g] = p.groups[g].gen
	}
	plan := &State{}
	plan.CopyFrom(p.state)
	plan.p = &problem
	plan.Refresh()
	rng := seeded.New(p.opt.Seed, "vqueue/replan/"+strconv.FormatInt(p.plans, 10))
	search := &Search{Stay: p.opt.Without[Balancing]}
	return func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
		before, began := plan.Work(), plan.Total()
		work = min(work, max(leastWork, workPerGroup*int64(len(gens))))
		search.Run(ctx, plan, rng, work)
		worked := plan.Work() - before
		if plan.Total() >= began-least {
			return dst, worked // nothing better: the order stays
		}
		for q := range problem.Queues {
			dst = append(dst, int32(plan.Len(int32(q))))
			for _, g := range plan.Order(int32(q), nil) {
				dst = append(dst, g, gens[g])
			}
		}
		return dst, worked
	}
}

// A search of few groups has seen what there is long before a large budget ends.
const (
	leastWork    = 20_000
	workPerGroup = 1000
)

// least is the gain from which on a new order is worth it.
const least = 0.05

// replanned takes over an order that a search found. Groups born since keep their
// queue, behind the others; those that are gone are passed over. An order for
// another number of queues, or one that is cut off, changes nothing.
func (p *Policy) replanned(now time.Duration, list []int32, out *policy.Actions) {
	for q := range p.orders {
		p.orders[q] = p.orders[q][:0]
		if len(list) == 0 {
			return
		}
		n := int(list[0])
		if n < 0 || len(list) < 1+2*n {
			return
		}
		for i := range n {
			g, gen := list[1+2*i], list[2+2*i]
			if g < 0 || int(g) >= len(p.groups) || p.groups[g].gen != gen || p.state.Where(g) < 0 || !p.runs(g, int32(q)) {
				continue
			}
			p.orders[q] = append(p.orders[q], g)
		}
		list = list[1+2*n:]
	}
	p.settle()
	for q := range p.instances {
		p.serve(now, int32(q), out)
	}
}

// settle arranges p.orders, each group once, with the groups that they lack.
func (p *Policy) settle() {
	seen := make([]bool, len(p.groups))
	for q := range p.orders {
		p.orders[q] = slices.DeleteFunc(p.orders[q], func(g int32) bool {
			again := seen[g]
			seen[g] = true
			return again
		})
	}
	for q := range p.orders {
		for _, x := range p.state.queues[q].slots {
			if !seen[x.group] {
				p.orders[q] = append(p.orders[q], x.group)
			}
		}
	}
	p.state.Arrange(p.orders)
	// A group may have come to a queue that has an open one of its model: it is open
	// no more.
	for i, g := range p.joinable {
		if g >= 0 && !p.opt.OneOpen && p.state.Where(g) != int32(i/(2*len(p.t.Models))) {
			p.joinable[i] = -1
		}
	}
}

// runs tells whether a group can run in a queue.
func (p *Policy) runs(g, q int32) bool {
	def := &p.problem.Queues[q]
	return !math.IsInf(p.problem.Cost(g, def.Kind).Work+def.Setup[p.problem.Groups[g].Model], 1)
}
