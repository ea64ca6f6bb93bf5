package pool

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/planner/stages"
)

// content is what a replica holds in a device.
type content struct {
	network     string
	first, last int
	pool, share int
}

// content of a stage.
func (p *Problem) content(t *stages.Template, si int) content {
	s := &t.Stages[si]
	return content{p.Models[t.Model].NetworkName(), s.First, s.Last, s.Pool, s.Share}
}

// held is what devices hold: [pool][device][content] replicas.
type held [][]map[content]int

// nothingHeld is what devices hold before anything runs.
func (p *Problem) nothingHeld() held {
	h := make(held, len(p.Pools))
	for k := range h {
		h[k] = make([]map[content]int, p.Pools[k].Count)
	}
	return h
}

// put puts replicas on the devices of a run, as far as the pool has them still, and
// tells how many that are.
func (h held) put(what content, run Run) (n int) {
	for j := range run.Replicas {
		at := run.First + j/run.PerDevice
		if at >= len(h[what.pool]) {
			break
		}
		if h[what.pool][at] == nil {
			h[what.pool][at] = map[content]int{}
		}
		h[what.pool][at][what]++
		n++
	}
	return n
}

// short counts the devices that hold less of something than they do in another.
func (h held) short(of held) (n int) {
	for k := range of {
		for d, c := range of[k] {
			for what, replicas := range c {
				if h[k][d][what] < replicas {
					n++
					break
				}
			}
		}
	}
	return n
}

// settle gives the bins of a pool, whatever they hold, to devices: first to
// those that hold just that, then to those that hold it among other things,
// and the rest to what is left, which has to load something.
func (h held) settle(pool int, bins []map[content]int) (at []int) {
	at = slices.Repeat([]int{-1}, len(bins))
	groups := map[string][]int{} // devices by what they hold
	var order []string
	for d, c := range h[pool] {
		k := name(c)
		if _, ok := groups[k]; !ok {
			order = append(order, k)
		}
		groups[k] = append(groups[k], d)
	}
	take := func(i int, k string) {
		at[i] = groups[k][0]
		groups[k] = groups[k][1:]
	}
	for i, b := range bins {
		if k := name(b); len(groups[k]) > 0 {
			take(i, k)
		}
	}
	within := func(b, c map[content]int) bool {
		for k, n := range b {
			if c[k] < n {
				return false
			}
		}
		return true
	}
	for i, b := range bins {
		if at[i] >= 0 {
			continue
		}
		for _, k := range order {
			if len(groups[k]) > 0 && within(b, h[pool][groups[k][0]]) {
				take(i, k)
				break
			}
		}
	}
	var left []int
	for _, k := range order {
		left = append(left, groups[k]...)
	}
	// Idle devices first: what runs on the others may run until they switch.
	slices.SortFunc(left, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(h[pool][a]), len(h[pool][b])), cmp.Compare(a, b))
	})
	for i := range bins {
		if at[i] < 0 {
			at[i], left = left[0], left[1:]
		}
	}
	return at
}

// name of what a device holds.
func name(c map[content]int) string {
	list := make([]string, 0, len(c))
	for k, n := range c {
		list = append(list, fmt.Sprintf("%s/%d-%d/%d*%d", k.network, k.first, k.last, k.share, n))
	}
	slices.Sort(list)
	return fmt.Sprint(list)
}

// settled orders the bins of a pool by the devices that they go to; devices
// between them get empty ones.
func (k *packing) settled(pool int, bins []bin) []bin {
	holds := make([]map[content]int, len(bins))
	for i := range bins {
		holds[i] = map[content]int{}
		for _, part := range bins[i].parts {
			holds[i][k.content(&k.templates[k.plan.list[part.count].template], part.stage)] += part.n
		}
	}
	out := make([]bin, k.Pools[pool].Count)
	for i, at := range k.have.settle(pool, holds) {
		out[at] = bins[i]
	}
	return out
}

// want is pieces with what they hold.
type want struct {
	piece
	key slotKey
	id  content
}

// keptPacking is the packing of one pool around what its devices hold.
type keptPacking struct {
	packing
	holds []map[content]int // by device
	wants []want
	of    map[content][]int // wants by what they hold
	unit  int               // parts of a device that free room is counted in
	bins  []bin             // by device
	owner []slotKey         // whose pieces a device has
	empty []int             // devices without pieces
}

// around packs a pool so that devices go on with what they hold: first every
// device takes what it holds and is still wanted, then the rest fills empty
// devices and what is free of others. It returns nil where that needs more
// devices than there are.
func (k *packing) around(pool int, groups []sharing) []bin {
	n := k.Pools[pool].Count
	s := &keptPacking{packing: *k, holds: k.have[pool], of: map[content][]int{}, unit: 1, bins: make([]bin, n), owner: make([]slotKey, n)}
	for _, g := range groups {
		for _, q := range g.pieces {
			id := k.content(&k.templates[k.plan.list[q.count].template], q.stage)
			s.of[id] = append(s.of[id], len(s.wants))
			s.wants = append(s.wants, want{q, g.key, id})
			s.unit = lcm(s.unit, q.share)
		}
	}
	for d := range s.bins {
		s.bins[d].free = s.unit
	}
	s.goOn()
	if !s.fill() {
		return nil
	}
	for d := range s.bins {
		s.bins[d].parts = merge(s.bins[d].parts)
	}
	return s.bins
}

// put gives a device some replicas of a piece.
func (s *keptPacking) put(d int, w *want, n int) {
	one := w.piece
	one.n = n
	s.bins[d].parts = append(s.bins[d].parts, one)
	s.bins[d].free -= n * s.unit / w.share
	s.owner[d] = w.key
	w.n -= n
}

// goOn gives devices what they hold and is wanted. Those of which most is still
// wanted come first.
func (s *keptPacking) goOn() {
	left := map[content]int{}
	for i := range s.wants {
		left[s.wants[i].id] += s.wants[i].n
	}
	ids := make([][]content, len(s.bins))
	order := all(len(s.bins))
	useful := make([]int, len(s.bins))
	for d, c := range s.holds {
		for id := range c {
			ids[d] = append(ids[d], id)
			useful[d] += min(c[id], left[id]) * s.unit / id.share
		}
		slices.SortFunc(ids[d], func(a, b content) int {
			return cmp.Or(cmp.Compare(a.network, b.network), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last), cmp.Compare(a.share, b.share))
		})
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(useful[b], useful[a]) })
	for _, d := range order {
		for _, id := range ids[d] {
			room := s.holds[d][id]
			for _, i := range s.of[id] {
				w := &s.wants[i]
				if s.Rounding == Slot && len(s.bins[d].parts) > 0 && s.owner[d] != w.key {
					continue
				}
				if m := min(room, w.n); m > 0 {
					s.put(d, w, m)
					room -= m
				}
			}
		}
	}
}

// fill gives the rest to devices: whole ones of one kind, then the largest first
// where there is room, on devices that load something anyway before others. It is
// false where there are too few.
func (s *keptPacking) fill() bool {
	for d := range s.bins {
		if len(s.bins[d].parts) == 0 {
			s.empty = append(s.empty, d)
		}
	}
	for i := range s.wants {
		w := &s.wants[i]
		for ; w.n >= w.share; s.empty = s.empty[1:] {
			if len(s.empty) == 0 {
				return false
			}
			s.put(s.empty[0], w, w.share)
		}
	}
	slices.SortStableFunc(s.wants, func(a, b want) int { return cmp.Compare(a.share, b.share) })
	loads := make([]bool, len(s.bins))
	for i := range s.wants {
		w := &s.wants[i]
		for w.n > 0 {
			at := -1
			for d := range s.bins {
				if len(s.bins[d].parts) > 0 && s.bins[d].free >= s.unit/w.share && (s.Rounding != Slot || s.owner[d] == w.key) &&
					(at < 0 || loads[d] && !loads[at]) {
					at = d
				}
			}
			if at < 0 {
				if len(s.empty) == 0 {
					return false
				}
				at, s.empty = s.empty[0], s.empty[1:]
			}
			s.put(at, w, 1)
			loads[at] = true
		}
	}
	return true
}
