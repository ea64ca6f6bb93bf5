package pool

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/planner/stages"
)

// replicaContent is what a replica holds in a device: blocks of a network, on a share of a device of a pool.
type content struct {
	network     string
	first, last int
	pool, share int
}

// contentOf returns the content of stage si of a template.
func (p *Problem) content(t *stages.Template, si int) content {
	s := &t.Stages[si]
	return content{p.Models[t.Model].NetworkName(), s.First, s.Last, s.Pool, s.Share}
}

// heldContents says what devices hold: the replicas of [pool][device][content].
type held [][]map[content]int

// emptyContents returns the contents of devices before anything runs.
func (p *Problem) nothingHeld() held {
	h := make(held, len(p.Pools))
	for k := range h {
		h[k] = make([]map[content]int, p.Pools[k].Count)
	}
	return h
}

// addRun puts replicas on the devices of a run, as far as the pool still has them. It returns how many it put.
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

// devicesShortOf returns how many devices hold less of some content than they are wanted to hold.
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

// assignBins assigns the bins of a pool, given by their contents, to devices, and returns the device of each
// bin. A bin goes to a device that holds just that content, else to one that holds it among other things, else
// to one of the remaining devices, which has to load something.
func (h held) settle(pool int, bins []map[content]int) (at []int) {
	at = slices.Repeat([]int{-1}, len(bins))

	// Group the devices by what they hold.
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

	// First the devices that hold just the content of the bin.
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

	// Then those that hold it among other things.
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
	// Then idle devices first: what runs on the others may go on until they switch.
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

// contentName returns a text that is equal for equal contents.
func name(c map[content]int) string {
	list := make([]string, 0, len(c))
	for k, n := range c {
		list = append(list, fmt.Sprintf("%s/%d-%d/%d*%d", k.network, k.first, k.last, k.share, n))
	}
	slices.Sort(list)
	return fmt.Sprint(list)
}

// assignToHolders orders the bins of a pool by the devices that they are assigned to. Devices between them get
// empty bins.
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

// wantedPiece is a piece with its slot and content.
type want struct {
	piece
	key slotKey
	id  content
}

// reusePacking packs one pool around what its devices hold.
type keptPacking struct {
	packing
	holds []map[content]int // by device
	wants []want
	of    map[content][]int // indexes of wantedPieces
	unit  int               // parts of a device that free space is counted in
	bins  []bin             // by device
	owner []slotKey         // by device: the slot whose pieces it has
	empty []int
}

// packAroundHeld packs a pool so that devices keep the contents that they hold. First every device keeps what it
// holds and the plan wants. Then the rest fills empty devices and free parts of the others. If that needs more
// devices than there are, it returns nil.
func (k *packing) around(pool int, groups []sharing) []bin {
	n := k.Pools[pool].Count
	s := &keptPacking{packing: *k, holds: k.have[pool], of: map[content][]int{}, unit: 1, bins: make([]bin, n), owner: make([]slotKey, n)}

	// The pieces that the plan wants.
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

// putReplicas puts n replicas of a wanted piece on a device.
func (s *keptPacking) put(d int, w *want, n int) {
	one := w.piece
	one.n = n
	s.bins[d].parts = append(s.bins[d].parts, one)
	s.bins[d].free -= n * s.unit / w.share
	s.owner[d] = w.key
	w.n -= n
}

// reuseHeld leaves on devices what they hold and the plan wants. The devices of which most is wanted come first.
func (s *keptPacking) goOn() {
	// Replicas that are wanted of each content.
	left := map[content]int{}
	for i := range s.wants {
		left[s.wants[i].id] += s.wants[i].n
	}

	// How much of each device is useful.
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

	// Keep what is wanted, under the slot rule for one slot per device only.
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

// placeRest places the remaining replicas: first whole devices of one piece, then the largest replicas into free
// parts, on devices that load something anyway before others. If there are too few devices, it returns false.
// Whole devices of one piece.
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

	// Single replicas, the largest first.
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
