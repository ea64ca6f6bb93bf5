package pool

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Under the slot rule no two models share a device: a plan allots whole devices of each pool to
// each model. For a throughput, the least allotments of a model are those within which whole replicas
// carry its rate, and that hold no smaller one. If not even parts of least allotments fit
// the devices, no plan has that throughput. Replicas of a model may share devices as their parts add
// up, at whatever position of a pipeline: plans share less, so that the bound holds for them.

// Limits of the search for least allotments.
const (
	allotmentRounds = 6         // throughputs that are tried
	allotmentPools  = 8         // pools at most
	allotmentParts  = 5040      // parts of a device at most
	allotmentSums   = 1_000_000 // sums of replicas that are looked at, for each unit of effort
	allotmentSteps  = 16        // of what is spare, by which budgets begin
)

// allotment is the amount of each pool that a model takes, in parts of a device.
type allotment [allotmentPools]int32

// within returns whether a takes no more than b of any pool.
func (a *allotment) within(b *allotment) bool {
	for k, v := range a {
		if v > b[k] {
			return false
		}
	}
	return true
}

// times returns so many times as much.
func (a *allotment) times(n int32) *allotment {
	out := *a
	for k := range out {
		out[k] *= n
	}
	return &out
}

// replicated is whole replicas of a template, or a sum of such.
type replicated struct {
	takes allotment
	cost  float64
	rate  float64 // requests/s
}

// allotting lists the least allotments of one model.
type allotting struct {
	perPart  []float64 // price of a part of a device of each pool
	devices  []int     // of each pool
	parts    int32     // of a device
	target   float64   // requests/s that the model needs
	cheapest float64   // least that an allotment costs, as far as is known
	budget   float64   // most that is looked at
	covers   *covers   // what carries a rate at least costs
	singles  []replicated
	rates    map[allotment]float64 // of the sums that were looked at
	least    []allotment           // in devices
	larger   map[allotment]bool    // devices that hold a least allotment
	sums     int                   // that were looked at
}

// allotments lowers the bound of a search for the most throughput: to the gap that was asked for, if not
// even parts of least allotments fit there, else to the lowest throughput at which they were seen not to.
// lists are the covers that bound each model's costs.
func (x *bundling) allotments(ctx context.Context, lists []*covers) error {
	parts := partsOf(x.Problem)
	if x.Rounding != Slot || x.timed() || parts == 0 || x.goal.cost() != nil || x.stay != nil || x.best == nil || x.sieves == nil && x.partial {
		return nil
	}
	work := allotmentSums * x.o.Effort
	low := x.score() / (1 - x.o.Gap) * (1 - 1e-8)
	for value, rounds := low, 0; value < x.inner && rounds < allotmentRounds && work > 0; rounds++ {
		fit, err := x.allotted(ctx, lists, value, parts, &work)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if !fit {
			x.inner = max(min(x.inner, value*(1+1e-9)), x.score())
		} else {
			low = value
		}
		value = (low + x.inner) / 2
	}
	return nil
}

// allotted returns whether parts of least allotments fit the devices at a throughput, or may: where listing
// them takes more than the work that is left.
func (x *bundling) allotted(ctx context.Context, lists []*covers, value float64, parts int32, work *int) (bool, error) {
	choices, fit := x.leastAllotments(ctx, lists, value, parts, work)
	if !fit || choices == nil {
		return fit, nil
	}
	picked, err := x.parts(ctx, x.picking(choices, &wish{idle: make([]float64, len(x.Pools))}))
	return picked != nil, err
}

// leastAllotments lists the least allotments of every model that a plan of a throughput may have: those that
// cost at most so much more than the model's cheapest as all cheapest ones leave of what all devices are
// worth. If the cheapest cost more than that, fit is false. If the list is too much work, it is nil.
func (x *bundling) leastAllotments(ctx context.Context, lists []*covers, value float64, parts int32, work *int) (list []bundle, fit bool) {
	var models []*allotting
	spare := sum(x.worth) * (1 + 1e-9)
	for d, c := range lists {
		a := &allotting{parts: parts, target: x.rate(d, value) * (1 - 1e-9), covers: c}
		for k := range x.Pools {
			a.perPart = append(a.perPart, x.worth[k]/float64(max(x.Pools[k].Count, 1)*int(parts)))
			a.devices = append(a.devices, x.Pools[k].Count)
		}
		a.cheapest = a.rest(a.target)
		spare -= a.cheapest
		models = append(models, a)
	}
	// Budgets rise step by step: what the cheapest allotments are known to cost lowers what is spare.
	for step := spare / allotmentSteps; ; step *= 2 {
		last := true
		for d, a := range models {
			budget := a.cheapest + min(step, spare)
			if budget <= a.budget {
				continue
			}
			a.budget = budget
			a.single(x.lists[d])
			enough := a.sum(*work)
			if *work -= a.sums; !enough || ctx.Err() != nil {
				return nil, true
			}
			cheapest := a.budget
			for i := range a.least {
				cheapest = min(cheapest, a.cost(a.least[i].times(parts)))
			}
			spare -= cheapest - a.cheapest
			a.cheapest = cheapest
			if spare < 0 {
				return nil, false
			}
			last = last && a.budget >= a.cheapest+spare
		}
		if last {
			break
		}
	}
	for d, a := range models {
		for _, n := range a.least {
			b := bundle{model: d, use: make([]float64, len(x.Pools))}
			for k := range b.use {
				b.use[k] = float64(n[k])
			}
			list = append(list, b)
		}
	}
	return list, true
}

// partsOf is the least number of parts of a device that all shares are whole numbers of; 0 where
// there are too many of them or of pools.
func partsOf(p *Problem) int32 {
	parts := 1
	for k := range p.Pools {
		for share := 2; share <= p.Pools[k].MaxShares; share++ {
			if parts = parts / gcd(parts, share) * share; parts > allotmentParts {
				return 0
			}
		}
	}
	if len(p.Pools) > allotmentPools {
		return 0
	}
	return int32(parts)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// rest returns the least cost of what carries a rate.
func (a *allotting) rest(rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return a.covers.cost[a.covers.at(rate)]
}

// single lists replicas of one template each that a sum within the budget may hold, the highest rate first:
// without those that take as much of every pool as others of no lower rate.
func (a *allotting) single(s *sieve) {
	a.singles = a.singles[:0]
	best := map[allotment]float64{}
	for i := range s.len() {
		stages := s.of(i)
		for j := range stages {
			if stages[j].share == 0 {
				break
			}
			for replicas := 1; ; replicas++ {
				rate := float64(replicas) / (stages[j].per * float64(stages[j].share))
				takes, cost := a.takes(stages, rate)
				if cost > a.budget {
					break
				}
				if cost+a.rest(a.target-rate) <= a.budget && rate > best[takes] {
					best[takes] = rate
				}
				if rate >= a.target {
					break
				}
			}
		}
	}
	all := make([]replicated, 0, len(best))
	for takes, rate := range best {
		all = append(all, replicated{takes, a.cost(&takes), rate})
	}
	slices.SortFunc(all, func(x, y replicated) int {
		return cmp.Or(cmp.Compare(y.rate, x.rate), cmp.Compare(x.cost, y.cost), slices.Compare(x.takes[:], y.takes[:]))
	})
	for i := range all {
		if !slices.ContainsFunc(a.singles, func(o replicated) bool { return o.takes.within(&all[i].takes) }) {
			a.singles = append(a.singles, all[i])
		}
	}
}

// takes returns the parts that the fewest replicas of a template take which carry a rate, and their cost: infinite if
// they are more than there are devices.
func (a *allotting) takes(stages []part, rate float64) (takes allotment, cost float64) {
	for i := range stages {
		p := &stages[i]
		if p.share == 0 {
			break
		}
		replicas := math.Ceil(rate*p.per*float64(p.share) - 1e-9)
		if replicas > float64(a.devices[p.pool])*float64(p.share) {
			return takes, math.Inf(1)
		}
		takes[p.pool] += int32(replicas) * (a.parts / int32(p.share))
	}
	return takes, a.cost(&takes)
}

func (a *allotting) cost(takes *allotment) (cost float64) {
	for k, price := range a.perPart {
		cost += price * float64(takes[k])
	}
	return cost
}

// sum adds up replicas, the highest rates first, and notes the least allotments that hold enough of them.
// It returns false where that is more work than so many sums.
func (a *allotting) sum(most int) bool {
	type step struct {
		replicated
		from int // of singles: each sum is made in one order
	}
	a.least, a.rates, a.larger, a.sums = nil, map[allotment]float64{}, map[allotment]bool{}, 0
	stack := []step{{}}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at.rate < a.rates[at.takes] {
			continue // there is a better sum of the same parts
		}
		for i := len(a.singles) - 1; i >= at.from; i-- {
			s := &a.singles[i]
			next := step{replicated{at.takes, at.cost + s.cost, at.rate + s.rate}, i}
			if next.cost+a.rest(a.target-next.rate) > a.budget {
				continue
			}
			var whole allotment
			cost := 0.0
			for k, price := range a.perPart {
				next.takes[k] += s.takes[k]
				whole[k] = (next.takes[k] + a.parts - 1) / a.parts
				cost += price * float64(whole[k]*a.parts)
			}
			if cost > a.budget || a.holdsLess(&whole) {
				continue
			}
			if next.rate >= a.target {
				a.least = append(slices.DeleteFunc(a.least, func(o allotment) bool { return whole.within(&o) }), whole)
				clear(a.larger)
				continue
			}
			if before, ok := a.rates[next.takes]; ok && before >= next.rate {
				continue
			}
			a.rates[next.takes] = next.rate
			if a.sums++; a.sums > most {
				return false
			}
			stack = append(stack, next)
		}
	}
	return true
}

// holdsLess returns whether devices hold a least allotment that was found.
func (a *allotting) holdsLess(whole *allotment) bool {
	holds, known := a.larger[*whole]
	if !known {
		holds = slices.ContainsFunc(a.least, func(o allotment) bool { return o.within(whole) })
		a.larger[*whole] = holds
	}
	return holds
}
