package pool

import (
	"cmp"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// Losses add up. By the duals of the relaxation a plan reaches its bound less
// what every configuration (whole replicas of one template, at the rate that
// they carry) takes more than its rate is worth, less the price of idle devices.
// So the plans of one model that may beat the best one are the sums of
// configurations whose losses stay within the gap: a knapsack over the devices
// that they take, solved exactly by labels of rising loss. Models are coupled by
// the devices alone: at a throughput each needs one of its least sets of devices,
// and those must fit. What is relaxed is how parts of devices round up: to whole
// ones per model and kind in place of model, stage position and kind.
//
// The program's own relaxation knows none of this, because a fraction of a large
// configuration, which loses little, looks as good as a small one.

const (
	lossWork   = 4_000_000 // configurations and sets of devices that are put together, per unit of effort
	lossMore   = 4         // times as many where a first look was not enough
	lossRounds = 16        // part of the gap that is looked at first
	lossGrowth = 1.5
	slotGrowth = 1.1
	lossStart  = 1.02
	lossSums   = 1_500_000 // kept in memory
	lossTheta  = 30        // halvings of the gap
	lossPivot  = 600       // steps that take as long as an iteration of the simplex method
	lossLabel  = 8         // steps that a new sum counts for
)

// configuration is whole replicas of a template.
type configuration struct {
	use      use
	rate     float64
	price    float64
	loss     float64
	template int
}

// knapsack is the proof for one plan of one relaxation.
type knapsack struct {
	x      *search
	dims   []dimension
	of     [][]int // per stage position and pool: the dimension
	bySlot bool
	budget float64 // what the plans that are looked at lose at most
	steps  int64
	limit  int64
	count  int // configurations
}

// losses lowers the bound by sums of losses: first with stage positions together,
// and where that finds the best sums there are, with them apart.
func (x *phases) losses(work int64) {
	if x.sums(work, false) && !x.o.Hurry {
		x.sums(lossMore*lossWork, true)
	}
}

// sums lowers the bound by the knapsack, where it is small enough, and keeps
// the plan that it finds where that is better. It tells whether it found the
// best sums there are; bySlot keeps stage positions apart, which takes more work.
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

// deepen looks at plans of little loss first, because what there is to look at
// grows fast with the loss. It tells whether it found the best ones.
func (k *knapsack) deepen() (exact bool) {
	x := k.x
	gap := x.lp.bound - x.score()
	growth := lossGrowth
	if k.bySlot {
		growth = slotGrowth
	}
	// Every plan is known to lose so much already.
	known := (x.lp.bound - x.inner) * lossStart
	for k.budget = min(max(gap/lossRounds, known), gap); x.gap() > max(x.o.Gap, proof); k.budget = min(k.budget*growth, gap) {
		if !(k.budget > 0) || !k.keys() {
			return false
		}
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
		// A plan that is not looked at loses as much as the first thing that was not.
		outside := x.lp.bound - min(first, k.budget)
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

// dimension is a part of a pool whose use is counted: its devices at one stage
// position, or at all those that have no dimension of their own.
type dimension struct {
	pool, unit int // unit: parts of a device that use is counted in
	word       int // of a key
	radix      uint64
	size       uint64
}

// use is the devices taken: per dimension a digit of one of two numbers.
type use [2]uint64

func (u use) with(v use) use { return use{u[0] + v[0], u[1] + v[1]} }
func (u use) compare(v use) int {
	return cmp.Or(cmp.Compare(u[0], v[0]), cmp.Compare(u[1], v[1]))
}

// keys sets up how the use of devices is written as a number; false where it
// has no room.
func (k *knapsack) keys() bool {
	p, x := k.x.Problem, k.x
	k.dims = k.dims[:0]
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

// parts is how many parts of a dimension are taken.
func (d *dimension) parts(u use) int { return int(u[d.word] / d.radix % d.size) }

// priceOf is the price of parts of a dimension.
func (k *knapsack) priceOf(d *dimension, parts int) float64 {
	return k.x.lp.price[d.pool] * float64(parts) / float64(k.x.Pools[d.pool].Count*d.unit)
}

// configurations of a model that lose no more than the budget, the least loss first.
// It is false where that is too much work.
func (k *knapsack) configurations(d int) (list []configuration, ok bool) {
	x := k.x
	best := map[use]configuration{}
	taken := make([]int, len(k.dims))
	for _, ti := range x.allowed {
		t := &x.templates[ti]
		if t.Model != d || x.loss[ti] > k.budget {
			continue
		}
		for i := range t.Stages {
		grow:
			for g := 1; ; g++ {
				k.steps++
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
	for _, c := range best {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b configuration) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), a.use.compare(b.use))
	})
	return list, true
}
