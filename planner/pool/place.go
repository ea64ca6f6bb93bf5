package pool

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/planner/stages"
)

// Run puts replicas on consecutive devices of a pool: PerDevice on each from First.
type Run struct{ First, PerDevice, Replicas int }

// piece is a number of equal replicas, each 1/share of a device.
type piece struct {
	count, stage int // index into counts.list and its stages
	share        int
	n            int
}

// bin is what one device holds.
type bin struct {
	free  int // of the common denominator
	parts []piece
}

// placed is a plan on physical devices: [count][stage] runs.
type placed [][][]Run

// place puts a plan's replicas on physical devices, so that no device holds
// more than a whole. Replicas that share whole devices by their sum need not
// fit them one by one (1/2 + 1/3 + 1/3 of one device and 1/2 + 1/3 of another
// leave no room for a third, say): then idle devices are taken, and where there
// are none the least useful replica goes, with a warning.
//
// Devices that hold what the plan wants somewhere go on with it.
func (p *Problem) place(templates []stages.Template, plan *counts, have held) (*counts, placed, []string) {
	var warnings []string
	for {
		where, stuck := p.tryPlace(templates, plan, have)
		if stuck < 0 {
			return plan, where, warnings
		}
		smaller := p.dropOne(templates, plan, stuck)
		if smaller == nil {
			return nil, nil, warnings
		}
		warnings = append(warnings, fmt.Sprintf(
			"shares of %s do not fit its devices one by one: a replica was left out, the objective went from %.6g to %.6g",
			p.Pools[stuck].Kind, plan.value, smaller.value))
		plan = smaller
	}
}

// tryPlace returns the pool that is too small, -1 when all fits.
func (p *Problem) tryPlace(templates []stages.Template, plan *counts, have held) (placed, int) {
	out := make(placed, len(plan.list))
	for i := range plan.list {
		out[i] = make([][]Run, len(plan.list[i].replicas))
	}
	for k := range p.Pools {
		pool := &p.Pools[k]
		groups := map[slotKey][]piece{}
		var keys []slotKey
		for ci := range plan.list {
			c := &plan.list[ci]
			t := &templates[c.template]
			for si := range t.Stages {
				s := &t.Stages[si]
				if s.Pool != k {
					continue
				}
				if pool.Time {
					out[ci][si] = []Run{{0, 1, pool.Count}}
					continue
				}
				key := slotKey{pool: k}
				if p.Rounding == Slot {
					key = slotKey{c.model, si, k}
				}
				if _, ok := groups[key]; !ok {
					keys = append(keys, key)
				}
				groups[key] = append(groups[key], piece{ci, si, s.Share, c.replicas[si]})
			}
		}
		slices.SortFunc(keys, func(a, b slotKey) int {
			return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.slot, b.slot))
		})
		bins := p.sticky(templates, plan, have, k, keys, groups)
		if bins == nil {
			for _, key := range keys {
				bins = append(bins, pack(groups[key])...)
			}
			if len(bins) > pool.Count {
				return nil, k
			}
			if have != nil {
				bins = p.settled(templates, plan, have, k, bins)
			}
		}
		for first, b := range bins {
			for _, part := range b.parts {
				runs := &out[part.count][part.stage]
				if n := len(*runs); n > 0 && (*runs)[n-1].PerDevice == part.n &&
					(*runs)[n-1].First+(*runs)[n-1].Replicas/part.n == first {
					(*runs)[n-1].Replicas += part.n
				} else {
					*runs = append(*runs, Run{first, part.n, part.n})
				}
			}
		}
	}
	return out, -1
}

// settled orders the bins of a pool by the devices that they go to; devices
// between them get empty ones.
func (p *Problem) settled(templates []stages.Template, plan *counts, have held, pool int, bins []bin) []bin {
	holds := make([]map[content]int, len(bins))
	for i := range bins {
		holds[i] = map[content]int{}
		for _, part := range bins[i].parts {
			holds[i][p.content(&templates[plan.list[part.count].template], part.stage)] += part.n
		}
	}
	out := make([]bin, p.Pools[pool].Count)
	for i, at := range have.settle(pool, holds) {
		out[at] = bins[i]
	}
	return out
}

// pack puts pieces into as few bins as a bounded search finds.
// Devices filled by one kind of replica come first.
func pack(pieces []piece) []bin {
	unit := 1
	for _, q := range pieces {
		unit = lcm(unit, q.share)
	}
	var bins []bin
	var left []piece // single replicas
	for _, q := range pieces {
		for ; q.n >= q.share; q.n -= q.share {
			full := q
			full.n = q.share
			bins = append(bins, bin{0, []piece{full}})
		}
		for range q.n {
			one := q
			one.n = 1
			left = append(left, one)
		}
	}
	slices.SortStableFunc(left, func(a, b piece) int { return cmp.Compare(a.share, b.share) }) // largest first
	need := 0
	for _, q := range left {
		need += unit / q.share
	}
	least := (need + unit - 1) / unit
	for n := least; ; n++ {
		open := make([]bin, n)
		for i := range open {
			open[i].free = unit
		}
		steps := 20000
		if fill(open, left, unit, &steps) {
			for i := range open {
				if len(open[i].parts) > 0 {
					bins = append(bins, bin{open[i].free, merge(open[i].parts)})
				}
			}
			return bins
		}
	}
}

// fill is a depth-first search that puts the pieces into the open bins. Equal
// bins are tried once, and equal pieces in order.
func fill(open []bin, left []piece, unit int, steps *int) bool {
	if len(left) == 0 {
		return true
	}
	if *steps--; *steps < 0 {
		return false
	}
	size := unit / left[0].share
	for i := range open {
		if open[i].free < size {
			continue
		}
		if slices.ContainsFunc(open[:i], func(b bin) bool { return b.free == open[i].free }) {
			continue
		}
		open[i].free -= size
		open[i].parts = append(open[i].parts, left[0])
		if fill(open, left[1:], unit, steps) {
			return true
		}
		open[i].free += size
		open[i].parts = open[i].parts[:len(open[i].parts)-1]
	}
	return false
}

// merge adds up the replicas of one stage on one device.
func merge(parts []piece) []piece {
	var out []piece
	for _, q := range parts {
		i := slices.IndexFunc(out, func(o piece) bool { return o.count == q.count && o.stage == q.stage })
		if i < 0 {
			out = append(out, q)
			continue
		}
		out[i].n += q.n
	}
	return out
}

// dropOne removes the replica on pool k whose loss hurts least.
func (p *Problem) dropOne(templates []stages.Template, plan *counts, k int) *counts {
	var best *counts
	for ci := range plan.list {
		t := &templates[plan.list[ci].template]
		for si := range t.Stages {
			if t.Stages[si].Pool != k || p.Pools[k].Time || plan.list[ci].replicas[si] == 0 || t.Stages[si].Share == 1 {
				continue
			}
			list := slices.Clone(plan.list)
			list[ci].replicas = slices.Clone(list[ci].replicas)
			list[ci].replicas[si]--
			smaller := p.recount(templates, list)
			if smaller == nil {
				continue
			}
			if best == nil || smaller.value > best.value || smaller.value == best.value && smaller.sum > best.sum {
				best = smaller
			}
		}
	}
	return best
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
