package pool

import (
	"cmp"
	"fmt"
	"slices"
)

// DeviceRun puts replicas on consecutive devices of a pool: PerDevice on each device from First on.
type Run struct{ First, PerDevice, Replicas int }

// replicaPiece is a number of equal replicas, each of which takes 1/share of a device.
type piece struct {
	count, stage int // indexes into the plan's pipelines and into their stages
	share        int
	n            int
}

// deviceBin is the content of one device.
type bin struct {
	free  int // parts of the device that are free
	parts []piece
}

// placement is where a plan's replicas are: the device runs of [pipeline][stage].
type placed [][][]Run

// planPacking puts a plan's replicas on physical devices, so that no device holds more than a whole one.
type packing struct {
	*catalogue
	plan *counts
	have held // held already by each device; nil if no plan runs
}

// placePlan packs a plan. Replicas that share whole devices by their sum need not fit them one by one: 1/2 + 1/3
// of one device and 1/2 + 1/3 of another leave no room for a third of 1/3, say. Then idle devices are taken. If
// there are none, the least useful replica is left out, with a warning. If no replica can be left out, the plan
// is nil.
//
// A device that already holds content that the plan wants keeps it.
func (c *catalogue) place(plan *counts, have held) (*counts, placed, []string) {
	var warnings []string
	for {
		k := &packing{c, plan, have}
		where, stuck := k.try()
		if stuck < 0 {
			return plan, where, warnings
		}
		smaller := k.without(stuck)
		if smaller == nil {
			return nil, nil, warnings
		}
		warnings = append(warnings, fmt.Sprintf(
			"shares of %s do not fit its devices one by one: a replica was left out, the objective went from %.6g to %.6g",
			c.Pools[stuck].Kind, plan.value, smaller.value))
		plan = smaller
	}
}

// unpackablePool returns the pool whose devices a plan does not fit one by one. If it fits all, it returns -1.
func (c *catalogue) stuck(plan *counts) int {
	_, pool := (&packing{c, plan, nil}).try()
	return pool
}

// packAll packs all pools. It returns the pool that is too small, or -1 if all fit.
func (k *packing) try() (placed, int) {
	out := make(placed, len(k.plan.list))
	for i := range k.plan.list {
		out[i] = make([][]Run, len(k.plan.list[i].replicas))
	}
	for pool := range k.Pools {
		bins, ok := k.bins(pool, out)
		if !ok {
			return nil, pool
		}

		// Merge equal pieces on consecutive devices to runs.
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

// slotGroup holds the pieces that may share whole devices.
type sharing struct {
	key    slotKey
	pieces []piece
}

// packPool packs one pool. If the pool is too small, it returns false. Stages on a time-shared pool run on all
// of its devices: their runs are written to out at once.
func (k *packing) bins(pool int, out placed) ([]bin, bool) {
	// Group the pieces by slot.
	var groups []sharing
	index := map[slotKey]int{}
	for ci := range k.plan.list {
		c := &k.plan.list[ci]
		t := &k.templates[c.template]
		for si := range t.Stages {
			s := &t.Stages[si]
			if s.Pool != pool {
				continue
			}
			if k.Pools[pool].Time {
				out[ci][si] = []Run{{0, 1, k.Pools[pool].Count}}
				continue
			}
			key := slotKey{pool: pool}
			if k.Rounding == Slot {
				key = slotKey{c.model, si, pool}
			}
			at, ok := index[key]
			if !ok {
				at = len(groups)
				groups, index[key] = append(groups, sharing{key: key}), at
			}
			groups[at].pieces = append(groups[at].pieces, piece{ci, si, s.Share, c.replicas[si]})
		}
	}
	slices.SortFunc(groups, func(a, b sharing) int {
		return cmp.Or(cmp.Compare(a.key.model, b.key.model), cmp.Compare(a.key.slot, b.key.slot))
	})

	// If a plan runs, first try to pack around what the devices hold.
	if k.have != nil {
		if bins := k.around(pool, groups); bins != nil {
			return bins, true
		}
	}

	// Else pack each group by itself.
	var bins []bin
	for _, g := range groups {
		bins = append(bins, pack(g.pieces)...)
	}
	if len(bins) > k.Pools[pool].Count {
		return nil, false
	}
	if k.have != nil {
		return k.settled(pool, bins), true
	}
	return k.spread(pool, bins), true
}

// withoutReplica returns the plan without that replica on a pool whose loss hurts least.
func (k *packing) without(pool int) *counts {
	var best *counts
	for ci := range k.plan.list {
		t := &k.templates[k.plan.list[ci].template]
		for si := range t.Stages {
			if t.Stages[si].Pool != pool || k.Pools[pool].Time || k.plan.list[ci].replicas[si] == 0 || t.Stages[si].Share == 1 {
				continue
			}
			list := slices.Clone(k.plan.list)
			list[ci].replicas = slices.Clone(list[ci].replicas)
			list[ci].replicas[si]--
			smaller := k.recount(list)
			if smaller != nil && (best == nil || smaller.value > best.value || smaller.value == best.value && smaller.sum > best.sum) {
				best = smaller
			}
		}
	}
	return best
}

// packPieces puts pieces into as few bins as a bounded search finds. Devices filled by one kind of replica come
// first.
func pack(pieces []piece) []bin {
	unit := 1
	for _, q := range pieces {
		unit = lcm(unit, q.share)
	}
	var bins []bin
	var left []piece
	for _, q := range pieces {
		// Whole devices of one piece; the rest are single replicas.
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

	// Try the fewest bins, then one more each time.
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

// fillBins is a depth-first search that puts the pieces into the open bins. Equal bins are tried once, and equal
// pieces in order.
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

// mergePieces adds up the replicas of the same stage on one device.
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

// lcm returns the least common multiple.
func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
