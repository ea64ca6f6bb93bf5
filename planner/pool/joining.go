package pool

import (
	"cmp"
	"slices"
)

// deviceSet is a set of devices with which a model reaches a rate.
type devices struct {
	n     []int32 // by pool: whole devices, or parts if those of all models round up together
	rate  float64 // in units
	price float64
	label int32 // a sum of configurations that carries the rate on these devices
}

// joinModels returns the largest throughput above minValue at which device sets of all models fit together, or a
// little more, and a plan for a little less. If there is none, it returns minValue and no plan.
func (k *knapsack) join(all []*fillings, least float64) (theta float64, plan []count) {
	x, p := k.x, k.x.Problem

	// The devices that there are, whole or in parts, and their price.
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

	// The device sets of each model.
	sets := make([][]devices, len(all))
	for d, l := range all {
		sets[d] = l.devices(least, whole)
	}

	// Bisect the throughput. A single model needs no bisection.
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

		// Look for one set of each model that carries the throughput.
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

	// Turn the labels that were chosen into pipelines.
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

// deviceSets lists the device sets of the labels of at least a rate, by rising price. Of the labels with equal
// device sets it takes the one of the highest rate.
func (l *fillings) devices(least float64, whole bool) []devices {
	k, p := l.k, l.k.x.Problem
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

		// Round up to whole devices.
		for j := range k.dims {
			dim := &k.dims[j]
			n, parts := dim.parts(at.use), dim.unit
			if whole {
				n, parts = (n+parts-1)/parts, 1
			}
			s.n[dim.pool] += int32(n)
			s.price += k.x.lp.price[dim.pool] * float64(n) / float64(p.Pools[dim.pool].Count*parts)
		}

		// Skip sets that exceed the pools. Keep the best label of equal ones.
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

// minimalSets returns those sets of at least a rate that hold no other one. The sets must be sorted by price.
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

// setJoiner looks for one device set of each model so that all fit together.
type joining struct {
	k      *knapsack
	sets   [][]devices // by model, by rising price
	room   []int32     // by pool: not yet taken
	total  float64     // of all devices
	from   []float64   // by model: least price of sets of it and all models after it
	chosen []int32     // by model: label of its set
}

// findSets looks for one set of each model. ok reports that one was found. decided is false if the work ran out
// before that was known.
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

// placeModels chooses sets of the models from d on, by depth-first search. price is that of the sets chosen
// before.
func (j *joining) put(d int, price float64) bool {
	if d == len(j.sets) {
		return true
	}
next:
	for i := range j.sets[d] {
		s := &j.sets[d][i]

		// No set from here on leaves enough for the models that follow: sets come by rising price.
		if price+s.price+j.from[d+1] > j.total {
			return false
		}
		if j.k.steps++; j.k.steps > j.k.limit {
			return false
		}

		// Take the set if it fits, place the other models, and give it back if they do not fit.
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
