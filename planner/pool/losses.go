package pool

import (
	"cmp"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// Losses add up. By the duals of the relaxation the throughput of a plan is at most the bound, less the loss of
// every configuration that it uses (whole replicas of one template, at the rate that they carry), less the price
// of idle devices. So one model's part of a plan that may beat the best one is a sum of configurations whose
// losses stay within the gap. Finding these sums is a knapsack over the devices that they take, solved exactly
// by labels of rising loss. Models share nothing but the devices: at a given throughput each model needs one of
// its device sets, and these must fit together. Only the rounding of parts of devices is relaxed: parts round up
// to whole devices per model and kind, not per model, stage position and kind.
//
// The relaxation of the integer program sees none of this, because a fraction of a large configuration, which
// loses little, looks as good there as a small configuration.

const (
	lossWork   = 4_000_000 // configurations and device sets that are combined, per unit of effort
	lossMore   = 4         // times as many, if the first pass was not enough
	lossRounds = 16        // the first loss budget is the gap divided by this
	lossGrowth = 1.5       // factor from one budget to the next
	slotGrowth = 1.1       // the same with stage positions apart
	lossStart  = 1.02      // factor of the first budget over the loss that every plan is known to have
	lossSums   = 1_500_000 // most labels kept in memory
	lossTheta  = 30        // halvings of the throughput interval
	lossPivot  = 600       // steps that take as long as one iteration of the simplex method
	lossLabel  = 8         // steps that a new label counts for
)

// lossItem is a configuration as an item of the knapsack: whole replicas of a template, at the rate that they
// carry.
type configuration struct {
	use      use
	rate     float64 // in units
	price    float64 // of the devices, in units
	loss     float64 // price - rateDual * rate
	template int
}

// lossKnapsack proves a bound for one plan and one relaxation by sums of losses.
type knapsack struct {
	x      *search
	dims   []dimension
	of     [][]int // by stage position and pool: index of the dimension
	bySlot bool    // whether stage positions are counted apart, as the slot rule does
	budget float64 // plans that lose more are not looked at
	steps  int64   // done so far
	limit  int64   // the search stops there
	count  int     // configurations of all models
}

// boundByLosses lowers the bound by sums of losses, first with stage positions counted together. If that pass
// finds the best such sums, a second one counts stage positions apart.
func (x *phases) losses(work int64) {
	if x.sums(work, false) && !x.o.Hurry {
		x.sums(lossMore*lossWork, true)
	}
}

// boundByLossSums runs the knapsack, if it is small enough. It lowers the bound, and keeps the plan found if
// that is better. exact reports whether the best sums were found. With bySlot stage positions are counted apart,
// which takes more work.
func (x *phases) sums(work int64, bySlot bool) (exact bool) {
	if x.goal.cost() != nil || x.partial || x.best == nil || x.timed() || x.many() || x.gap() <= max(x.o.Gap, proof) ||
		bySlot && x.Rounding != Slot {
		return false
	}
	for d := range x.Models {
		if x.Models[d].MinRPS > 0 || x.lp.worth[d] < 1e-9 {
			return false
		}
	}
	k := &knapsack{x: x.search, limit: work * int64(x.o.Effort), bySlot: bySlot}
	exact = k.deepen()
	if k.steps > 0 {
		x.phase("losses", k.count, milp.Stats{Iterations: max(1, k.steps/lossPivot)})
	}
	return exact
}

// raiseBudget looks at plans of little loss first and raises the loss budget step by step, because the number of
// sums grows fast with it. It reports whether it found the best plan.
func (k *knapsack) deepen() (exact bool) {
	x := k.x
	gap := x.lp.bound - x.score()
	growth := lossGrowth
	if k.bySlot {
		growth = slotGrowth
	}
	// Every plan is known to lose this much already.
	known := (x.lp.bound - x.inner) * lossStart
	for k.budget = min(max(gap/lossRounds, known), gap); x.gap() > max(x.o.Gap, proof); k.budget = min(k.budget*growth, gap) {
		if !(k.budget > 0) || !k.keys() {
			return false
		}

		// The labels of every model within the budget.
		first := math.Inf(1)
		k.count = 0
		var all []*fillings
		for d := range x.Models {
			l := k.model(d)
			all = append(all, l)
			first = min(first, l.first)
			k.count += len(l.items)
		}
		if first == 0 {
			return false
		}
		// A plan outside the search loses at least as much as the first label that was not listed.
		outside := x.lp.bound - min(first, k.budget)

		// Combine the models, and keep the plan and the bound.
		theta, plan := k.join(all, outside)
		if plan != nil {
			x.keep(x.recount(plan))
		}
		x.inner = max(min(x.inner, max(theta, outside)*(1+1e-9)), x.score())
		if theta > outside {
			return true
		}
		if k.budget >= gap || k.steps >= k.limit {
			return x.gap() <= proof
		}
	}
	return true
}

// useDimension is a part of a pool whose use is counted: the devices of one stage position, or those of all
// positions that have no dimension of their own. A use is written as a number with a digit per dimension.
type dimension struct {
	pool, unit int    // parts of a device that the use is counted in
	word       int    // index of the deviceUse number that holds the digit
	radix      uint64 // value of one part in that number
	size       uint64 // of the digit: all parts of the pool, plus one
}

// deviceUse says which devices are taken: one digit per dimension, over two numbers.
type use [2]uint64

// plus adds up two uses.
func (u use) with(v use) use { return use{u[0] + v[0], u[1] + v[1]} }

// compare orders uses by their numbers.
func (u use) compare(v use) int {
	return cmp.Or(cmp.Compare(u[0], v[0]), cmp.Compare(u[1], v[1]))
}

// setDimensions chooses the dimensions and how a use is written as two numbers. If the numbers are too small for
// that, it returns false.
func (k *knapsack) keys() bool {
	p, x := k.x.Problem, k.x
	k.dims = k.dims[:0]

	// One dimension for each pool.
	for i := range p.Pools {
		k.dims = append(k.dims, dimension{pool: i, unit: 1})
	}
	k.of = make([][]int, p.MaxPartitions)
	for si := range k.of {
		k.of[si] = make([]int, len(p.Pools))
		for i := range p.Pools {
			k.of[si][i] = i
		}
	}

	// With stage positions apart, each position that takes shares of a pool gets a dimension of its own.
	for _, ti := range x.allowed {
		if x.loss[ti] > k.budget {
			continue
		}
		for si, s := range x.templates[ti].Stages {
			at := &k.of[si][s.Pool]
			if k.bySlot && s.Share > 1 && *at == s.Pool {
				*at = len(k.dims)
				k.dims = append(k.dims, dimension{pool: s.Pool, unit: 1})
			}
			k.dims[*at].unit = lcm(k.dims[*at].unit, s.Share)
		}
	}

	// The radix of each digit.
	word, size := 0, uint64(1)
	for i := range k.dims {
		d := &k.dims[i]
		d.size = uint64(p.Pools[d.pool].Count*d.unit + 1)
		if size > math.MaxUint64/4/d.size {
			word, size = word+1, 1
		}
		if word == len(use{}) {
			return false
		}
		d.word, d.radix = word, size
		size *= d.size
	}
	return true
}

// partsOf returns how many parts of the dimension a use takes.
func (d *dimension) parts(u use) int { return int(u[d.word] / d.radix % d.size) }

// partsPrice returns the price of parts of a dimension.
func (k *knapsack) priceOf(d *dimension, parts int) float64 {
	return k.x.lp.price[d.pool] * float64(parts) / float64(k.x.Pools[d.pool].Count*d.unit)
}

// listItems lists the configurations of model d that lose no more than the budget, the least loss first. If that
// is too much work, it returns false.
func (k *knapsack) configurations(d int) (list []configuration, ok bool) {
	x := k.x

	// Of configurations with the same use, keep the one of the highest rate.
	best := map[use]configuration{}
	taken := make([]int, len(k.dims))
	for _, ti := range x.allowed {
		t := &x.templates[ti]
		if t.Model != d || x.loss[ti] > k.budget {
			continue
		}

		// For each stage, g replicas of it set the rate, and the others have as many as it needs.
		for i := range t.Stages {
		grow:
			for g := 1; ; g++ {
				k.steps++

				// The devices that carry the rate.
				c := configuration{template: ti, rate: t.Stages[i].Rate * float64(g)}
				clear(taken)
				for j := range t.Stages {
					s := &t.Stages[j]
					n := int(math.Ceil(c.rate/s.Rate - 1e-9))
					at := k.of[j][s.Pool]
					taken[at] += n * (k.dims[at].unit / s.Share)
					if uint64(taken[at]) >= k.dims[at].size {
						break grow
					}
				}
				c.rate /= x.u.rps[d]
				for j, n := range taken {
					if n == 0 {
						continue // a pool without devices has no price
					}
					dim := &k.dims[j]
					c.use[dim.word] += uint64(n) * dim.radix
					c.price += k.priceOf(dim, n)
				}
				c.loss = max(c.price-x.lp.worth[d]*c.rate, 0)
				if c.loss > k.budget {
					continue
				}
				if b, ok := best[c.use]; !ok || c.rate > b.rate {
					best[c.use] = c
				}
			}
		}
		if k.steps > k.limit {
			return nil, false
		}
	}

	// By rising loss.
	for _, c := range best {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b configuration) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), a.use.compare(b.use))
	})
	return list, true
}
