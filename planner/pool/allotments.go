package pool

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Under the slot rule no two models share a device: a plan allots whole devices of each pool to each model. At a
// given throughput, the minimal allotments of a model are those within which whole replicas carry its rate, and
// that hold no smaller one. If not even parts of minimal allotments fit the devices, no plan has that
// throughput. Replicas of one model may share devices here as their parts add up, at any stage position. Plans
// share less, so the bound holds for them.

// Limits of the search for minimal allotments.
const (
	allotmentRounds = 6         // throughputs that are tried
	allotmentPools  = 8         // most pools
	allotmentParts  = 5040      // most parts of a device
	allotmentSums   = 1_000_000 // most sums of replicas, for each unit of effort
	allotmentSteps  = 16        // the first budget adds this part of what is spare
)

// allotment is the amount of each pool that a model takes, in parts of a device or in devices.
type allotment [allotmentPools]int32

// fitsWithin reports whether a takes no more than b of any pool.
func (a *allotment) within(b *allotment) bool {
	for k, v := range a {
		if v > b[k] {
			return false
		}
	}
	return true
}

// multiply returns n times the allotment.
func (a *allotment) times(n int32) *allotment {
	out := *a
	for k := range out {
		out[k] *= n
	}
	return &out
}

// replicaSum is whole replicas of a template, or a sum of several such.
type replicated struct {
	takes allotment
	cost  float64
	rate  float64 // requests/s
}

// allotmentSearch lists the minimal allotments of one model.
type allotting struct {
	perPart  []float64             // by pool: price of a part of a device
	devices  []int                 // by pool: number of devices
	parts    int32                 // parts that a device is counted in
	target   float64               // requests/s that the model needs
	cheapest float64               // lower bound on what an allotment costs
	budget   float64               // sums that cost more are ignored
	covers   *covers               // lower bounds on the cost of carrying a rate
	singles  []replicated          // replicas of one template each
	rates    map[allotment]float64 // by parts taken: highest rate of the sums seen
	least    []allotment           // minimal allotments found, in devices
	larger   map[allotment]bool    // by devices: whether they hold a minimal allotment
	sums     int                   // number of sums seen
}

// boundByAllotments lowers the bound of a search for the most throughput. If not even parts of minimal
// allotments fit the devices at the gap that was asked for, it lowers the bound to there, else to the lowest
// throughput at which they do not fit. covers bound each model's costs from below.
func (x *bundling) allotments(ctx context.Context, lists []*covers) error {
	parts := partsOf(x.Problem)
	if x.Rounding != Slot || x.timed() || parts == 0 || x.goal.cost() != nil || x.stay != nil || x.best == nil || x.sieves == nil && x.partial {
		return nil
	}
	work := allotmentSums * x.o.Effort

	// The throughput at which the best plan has just the gap that was asked for.
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

// allotmentsFit reports whether parts of minimal allotments fit the devices at a throughput. If the listing
// takes more than the remaining work, it returns true: they may fit.
func (x *bundling) allotted(ctx context.Context, lists []*covers, value float64, parts int32, work *int) (bool, error) {
	choices, fit := x.leastAllotments(ctx, lists, value, parts, work)
	if !fit || choices == nil {
		return fit, nil
	}
	picked, err := x.parts(ctx, x.picking(choices, &wish{idle: make([]float64, len(x.Pools))}))
	return picked != nil, err
}

// minimalAllotments lists, as bundles, the minimal allotments of every model that a plan of a throughput may
// have. An allotment may cost so much more than the model's cheapest one as the cheapest ones of all models
// leave of the worth of all devices. If the cheapest cost more than that, mayFit is false. If the listing is too
// much work, the list is nil.
func (x *bundling) leastAllotments(ctx context.Context, lists []*covers, value float64, parts int32, work *int) (list []bundle, fit bool) {
	// A search for each model. What all devices are worth, less the least cost of every model, is spare.
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
	// Budgets rise step by step. The more the cheapest allotments are known to cost, the less is spare.
	for step := spare / allotmentSteps; ; step *= 2 {
		last := true

		// Each search lists its minimal allotments within its budget.
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

	// Write the allotments as bundles.
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

// partsPerDeviceOf returns the least number of parts of a device in which all shares are whole numbers. If there
// are too many parts, or too many pools, it returns 0.
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

// gcd returns the greatest common divisor.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// coverCost returns a lower bound on the cost of carrying a rate.
func (a *allotting) rest(rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return a.covers.cost[a.covers.at(rate)]
}

// listTemplateSums lists the replicas of one template each that a sum within the cost limit may hold, the
// highest rate first. It leaves out those that take at least as much of every pool as others of no lower rate.
func (a *allotting) single(s *sieve) {
	a.singles = a.singles[:0]

	// The highest rate of every allotment.
	best := map[allotment]float64{}

	// For each stage, replicas of it set the rate, and the other stages take the fewest replicas that carry it.
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

	// The highest rates first, and of those the ones that no other one undercuts.
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

// fewestParts returns the parts that the fewest replicas of a template take which carry a rate, and their cost.
// If they need more devices than there are, the cost is infinite.
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

// priceOf returns the price of the parts that an allotment takes.
func (a *allotting) cost(takes *allotment) (cost float64) {
	for k, price := range a.perPart {
		cost += price * float64(takes[k])
	}
	return cost
}

// listMinimal adds up replicas, the highest rates first, and collects the minimal allotments that hold enough of
// them. If that takes more than maxSums sums, it returns false.
func (a *allotting) sum(most int) bool {
	type step struct {
		replicated
		from int // index of the first element of templateSums to add: so each sum is made in one order only
	}
	a.least, a.rates, a.larger, a.sums = nil, map[allotment]float64{}, map[allotment]bool{}, 0
	stack := []step{{}}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at.rate < a.rates[at.takes] {
			continue // another sum of the same parts has a higher rate
		}

		// Add each of the remaining templateSums once more.
		for i := len(a.singles) - 1; i >= at.from; i-- {
			s := &a.singles[i]
			next := step{replicated{at.takes, at.cost + s.cost, at.rate + s.rate}, i}
			if next.cost+a.rest(a.target-next.rate) > a.budget {
				continue
			}

			// The whole devices that hold the sum.
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

			// If it carries the rate, it is a minimal allotment and replaces those that hold it.
			if next.rate >= a.target {
				a.least = append(slices.DeleteFunc(a.least, func(o allotment) bool { return whole.within(&o) }), whole)
				clear(a.larger)
				continue
			}

			// Else go on from it, unless the same parts carried more before.
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

// containsMinimal reports whether devices hold a minimal allotment that was found.
func (a *allotting) holdsLess(whole *allotment) bool {
	holds, known := a.larger[*whole]
	if !known {
		holds = slices.ContainsFunc(a.least, func(o allotment) bool { return o.within(whole) })
		a.larger[*whole] = holds
	}
	return holds
}
