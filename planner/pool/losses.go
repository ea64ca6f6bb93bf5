package pool

import (
	"cmp"
	"container/heap"
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
	nodes  int64
	count  int // configurations
}

// filling is a sum of configurations of one model.
type filling struct {
	use    use
	rate   float64
	loss   float64
	parent int32 // label; -1 for none
	item   int32
}

// fillings are the sums of configurations of one model, by rising loss.
type fillings struct {
	k     *knapsack
	model int
	items []configuration
	list  []filling // popped, or open
	at    map[use]int32
	open  []int32
	done  []bool
	first float64 // what is not listed loses at least so much
}

func (l *fillings) Len() int { return len(l.open) }
func (l *fillings) Less(i, j int) bool {
	a, b := &l.list[l.open[i]], &l.list[l.open[j]]
	return a.loss < b.loss || a.loss == b.loss && a.use.compare(b.use) < 0
}
func (l *fillings) Swap(i, j int) { l.open[i], l.open[j] = l.open[j], l.open[i] }
func (l *fillings) Push(v any)    { l.open = append(l.open, v.(int32)) }
func (l *fillings) Pop() any {
	n := len(l.open) - 1
	v := l.open[n]
	l.open = l.open[:n]
	return v
}

// sums lowers the bound by the knapsack, where it is small enough, and keeps
// the plan that it finds where that is better. It tells whether it found the
// best sums there are; bySlot keeps stage positions apart, which takes more work.
func (x *search) sums(work int64, bySlot bool) (exact bool) {
	if x.goal.cost() != nil || x.partial || x.best == nil || x.timed() || x.stay != nil || x.many() || x.gap() <= max(x.o.Gap, proof) ||
		bySlot && x.p.Rounding != Slot {
		return false
	}
	for d := range x.p.Models {
		if x.p.Models[d].MinRPS > 0 || x.lp.worth[d] < 1e-9 {
			return false
		}
	}
	k := &knapsack{x: x, limit: work * int64(x.o.Effort), bySlot: bySlot}
	exact = k.deepen()
	if k.steps > 0 {
		x.phase("losses", k.count, milp.Stats{Nodes: k.nodes, Iterations: k.steps})
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
		for d := range x.p.Models {
			l := k.model(d)
			all = append(all, l)
			first = min(first, l.first)
			k.count += len(l.items)
			k.nodes += int64(len(l.list))
		}
		if first == 0 {
			return false
		}
		// A plan that is not looked at loses as much as the first thing that was not.
		outside := x.lp.bound - min(first, k.budget)
		theta, plan := k.join(all, outside)
		if plan != nil {
			x.keep(x.p.recount(x.templates, plan))
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
	p, x := k.x.p, k.x
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

// configurations of a model that lose no more than the budget, the least loss first.
// It is false where that is too much work.
func (k *knapsack) configurations(d int) (list []configuration, ok bool) {
	x, p := k.x, k.x.p
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
					dim := &k.dims[j]
					c.use[dim.word] += uint64(n) * dim.radix
					c.price += x.lp.price[dim.pool] * float64(n) / float64(p.Pools[dim.pool].Count*dim.unit)
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

// model lists the sums of a model's configurations that may be part of a better plan.
func (k *knapsack) model(d int) *fillings {
	x, p := k.x, k.x.p
	l := &fillings{k: k, model: d, at: map[use]int32{}, first: math.Inf(1)}
	var ok bool
	if l.items, ok = k.configurations(d); !ok {
		l.first = 0
		return l
	}
	// Every other model needs devices of the worth of its rate at least.
	most := x.lp.worth[d]*(x.lp.bound-k.budget) + k.budget
	if len(p.Models) == 1 {
		most = math.Inf(1)
	}
	share := k.steps + (k.limit-k.steps)/int64(len(p.Models)-d+1)
	push := func(c filling) {
		i, ok := l.at[c.use]
		switch {
		case !ok:
			i = int32(len(l.list))
			l.list, l.done = append(l.list, c), append(l.done, false)
			k.steps += lossLabel
			l.at[c.use] = i
		case l.done[i] || l.list[i].loss <= c.loss:
			return
		default:
			l.list[i] = c
		}
		heap.Push(l, i)
	}
	push(filling{parent: -1})
	for len(l.open) > 0 {
		i := heap.Pop(l).(int32)
		if l.done[i] {
			continue
		}
		at := l.list[i]
		if k.steps > share || len(l.list) > lossSums/len(p.Models) {
			l.first = at.loss
			break
		}
		l.done[i] = true
		price := at.loss + x.lp.worth[d]*at.rate
	next:
		for n := range l.items {
			c := &l.items[n]
			if at.loss+c.loss > k.budget {
				break
			}
			k.steps++
			if price+c.price > most {
				continue
			}
			for i := range k.dims {
				if dim := &k.dims[i]; uint64(dim.parts(at.use)+dim.parts(c.use)) >= dim.size {
					continue next
				}
			}
			push(filling{at.use.with(c.use), at.rate + c.rate, at.loss + c.loss, i, int32(n)})
		}
	}
	return l
}

// devices is a set of devices with which a model reaches a rate.
type devices struct {
	n     []int32 // per pool: whole ones, or parts where they round up together
	rate  float64
	price float64
	label int32
}

// join returns the largest throughput above least for which sets of devices of
// all models fit, or a little more, and a plan for a little less; least where
// there is none.
func (k *knapsack) join(all []*fillings, least float64) (theta float64, plan []count) {
	x, p := k.x, k.x.p
	least = max(least, x.score())
	whole := p.Rounding == Slot
	room := make([]int32, len(p.Pools))
	total := 0.0
	for i := range room {
		room[i] = int32(p.Pools[i].Count)
		if !whole {
			room[i] *= int32(k.dims[i].unit)
		}
		total += x.lp.price[i]
	}
	sets := make([][]devices, len(all))
	for d, l := range all {
		sets[d] = l.devices(least, whole)
	}
	lo, hi := least, x.lp.bound
	var at []int32
	if len(all) == 1 {
		for _, s := range sets[0] {
			if s.rate > lo {
				lo, at = s.rate, []int32{s.label}
			}
		}
		hi = lo
	}
	for range lossTheta {
		if hi-lo <= proof/4*hi {
			break
		}
		mid := (lo + hi) / 2
		j := &joining{k: k, room: slices.Clone(room), total: total * (1 + 1e-9), from: make([]float64, len(all)+1), chosen: make([]int32, len(all))}
		for d := range sets {
			j.sets = append(j.sets, minimal(sets[d], mid))
		}
		switch ok, known := j.fits(); {
		case ok:
			lo, at = mid, j.chosen
		case !known:
			lo, at = mid, nil // it may fit
		default:
			hi = mid
		}
	}
	if lo > least {
		theta = hi
	} else {
		theta = least
	}
	for d, i := range at {
		byTemplate := map[int][]int{}
		var order []int
		for ; i > 0; i = all[d].list[i].parent {
			c := &all[d].items[all[d].list[i].item]
			t := &x.templates[c.template]
			g, ok := byTemplate[c.template]
			if !ok {
				g = make([]int, len(t.Stages))
				order = append(order, c.template)
				byTemplate[c.template] = g
			}
			for si, n := range carry(t, c.template, c.rate*x.u.rps[d]).replicas {
				g[si] += n
			}
		}
		for _, ti := range order {
			plan = append(plan, count{template: ti, model: d, replicas: byTemplate[ti]})
		}
	}
	return theta, plan
}

// devices are the sets of devices of the fillings of at least a rate: the most
// that each carries, by price.
func (l *fillings) devices(least float64, whole bool) []devices {
	k, p := l.k, l.k.x.p
	var out []devices
	byUse := map[string]int{}
	var key []byte
list:
	for i := range l.list {
		at := &l.list[i]
		if !l.done[i] || at.rate < least {
			continue
		}
		s := devices{n: make([]int32, len(p.Pools)), rate: at.rate, label: int32(i)}
		key = key[:0]
		for j := range k.dims {
			dim := &k.dims[j]
			n, parts := dim.parts(at.use), dim.unit
			if whole {
				n, parts = (n+parts-1)/parts, 1
			}
			s.n[dim.pool] += int32(n)
			s.price += k.x.lp.price[dim.pool] * float64(n) / float64(p.Pools[dim.pool].Count*parts)
		}
		for j, n := range s.n {
			if int(n) > p.Pools[j].Count && whole {
				continue list
			}
			key = append(key, byte(n), byte(n>>8), byte(n>>16))
		}
		if j, ok := byUse[string(key)]; !ok {
			byUse[string(key)] = len(out)
			out = append(out, s)
		} else if out[j].rate < s.rate {
			out[j] = s
		}
	}
	slices.SortStableFunc(out, func(a, b devices) int { return cmp.Compare(a.price, b.price) })
	return out
}

// minimal are the sets of at least a rate that hold no other one.
func minimal(sets []devices, rate float64) []devices {
	var out []devices
	for _, s := range sets {
		if s.rate < rate {
			continue
		}
		if !slices.ContainsFunc(out, func(o devices) bool {
			for i := range s.n {
				if o.n[i] > s.n[i] {
					return false
				}
			}
			return true
		}) {
			out = append(out, s)
		}
	}
	return out
}

// joining looks for one set of each model that fit together.
type joining struct {
	k      *knapsack
	sets   [][]devices // by price
	room   []int32
	total  float64   // price of all devices
	from   []float64 // least price of the sets of the models from here on
	chosen []int32
}

func (j *joining) fits() (ok, known bool) {
	for d := len(j.sets) - 1; d >= 0; d-- {
		if len(j.sets[d]) == 0 {
			return false, true
		}
		j.from[d] = j.from[d+1] + j.sets[d][0].price
	}
	ok = j.put(0, 0)
	return ok, ok || j.k.steps <= j.k.limit
}

func (j *joining) put(d int, price float64) bool {
	if d == len(j.sets) {
		return true
	}
next:
	for i := range j.sets[d] {
		s := &j.sets[d][i]
		if price+s.price+j.from[d+1] > j.total {
			return false
		}
		if j.k.steps++; j.k.steps > j.k.limit {
			return false
		}
		for i, n := range s.n {
			if n > j.room[i] {
				continue next
			}
		}
		for i, n := range s.n {
			j.room[i] -= n
		}
		j.chosen[d] = s.label
		if j.put(d+1, price+s.price) {
			return true
		}
		for i, n := range s.n {
			j.room[i] += n
		}
	}
	return false
}
