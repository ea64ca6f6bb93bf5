package pool

import (
	"fmt"
	"slices"
)

// calmLink is the part of its time up to which a busy link justifies no swap. In the recorded cases links below
// it made no model wait, and models on one node disturb each other.
const calmLink = 0.7

// nicLoad is the part of its time for which each direction of a NIC is busy: up, down.
type traffic [2]float64

// busier returns the load of the busier direction.
func (t traffic) most() float64 { return max(t[0], t[1]) }

// overload returns the sum of the squares of what each direction has to do beyond calmLink.
func (t traffic) over() (sum float64) {
	for _, busy := range t {
		if busy > calmLink {
			sum += (busy - calmLink) * (busy - calmLink)
		}
	}
	return sum
}

// trafficOf returns the NIC load that the replicas on a device cause at the rates of the plan.
func (k *packing) sends(b *bin) (t traffic) {
	for _, part := range b.parts {
		c := &k.plan.list[part.count]
		s := k.templates[c.template].Stages
		rps := c.rps / float64(c.replicas[part.stage]) * float64(part.n)
		cut := func(i int) (seconds float64, from, to bool) {
			return k.LinkTime(s[i].Pool, s[i+1].Pool, k.Models[c.model].CutBytes[s[i].Last-1])
		}
		if part.stage+1 < len(s) {
			if seconds, from, _ := cut(part.stage); from {
				t[0] += rps * seconds
			}
		}
		if part.stage > 0 {
			if seconds, _, to := cut(part.stage - 1); to {
				t[1] += rps * seconds
			}
		}
	}
	return t
}

// nodeKind is a set of nodes whose devices have equal loads.
type nodeKind struct {
	loads []int   // indexes of the loads of the devices, sorted
	busy  traffic // sum of the loads
	nodes []int
}

// nodeBalancer swaps devices between the nodes of a pool. Devices and nodes of equal loads are looked at once,
// so the work hardly grows with the pool.
type spreading struct {
	of    []int // by device: index of its load
	loads []traffic
	nodes [][]int // by node
	kinds []nodeKind
	index map[string]int // by the text of the loads: index of the kind
}

// spreadOverNodes orders the devices of a pool so that no NIC is overloaded while another could take load off
// it.
func (k *packing) spread(pool int, bins []bin) []bin {
	p := &k.Pools[pool]
	if p.Gbps <= 0 || p.PerNode < 2 || len(bins) <= p.PerNode {
		return bins
	}
	loads := make([]traffic, len(bins))
	for i := range bins {
		loads[i] = k.sends(&bins[i])
	}
	out := make([]bin, 0, len(bins))
	for _, b := range evened(loads, p.PerNode) {
		out = append(out, bins[b])
	}
	return out
}

// balanceNodes orders devices with given loads over nodes of perNode devices. Busy nodes swap devices with
// others as long as that takes load off busy NICs and leaves the busier of the two nodes with no more than
// before. Other devices stay where they are.
func evened(loads []traffic, perNode int) []int {
	s := &spreading{index: map[string]int{}}
	for _, t := range loads {
		at := slices.Index(s.loads, t)
		if at < 0 {
			at, s.loads = len(s.loads), append(s.loads, t)
		}
		s.of = append(s.of, at)
	}
	for node := range slices.Chunk(all(len(loads)), perNode) {
		s.nodes = append(s.nodes, node)
		s.add(len(s.nodes) - 1)
	}
	for s.swap() {
	}
	return slices.Concat(s.nodes...)
}

// addNode adds a node to the nodes of its kind.
func (s *spreading) add(node int) {
	var loads []int
	var busy traffic
	for _, b := range s.nodes[node] {
		loads = append(loads, s.of[b])
	}
	slices.Sort(loads)
	for _, l := range loads {
		busy[0] += s.loads[l][0]
		busy[1] += s.loads[l][1]
	}
	key := fmt.Sprint(loads)
	at, ok := s.index[key]
	if !ok {
		at = len(s.kinds)
		s.index[key], s.kinds = at, append(s.kinds, nodeKind{loads: loads, busy: busy})
	}
	s.kinds[at].nodes = append(s.kinds[at].nodes, node)
}

// swapBest makes the swap that takes most load off busy NICs. If no swap does, it returns false.
func (s *spreading) swap() bool {
	const least = 1e-9

	// Find the best pair of loads to swap.
	best, from, to, give, take := least, -1, -1, 0, 0
	for i := range s.kinds {
		a := &s.kinds[i]
		if len(a.nodes) == 0 || a.busy.over() == 0 {
			continue
		}
		for j := range s.kinds {
			b := &s.kinds[j]
			if i == j || len(b.nodes) == 0 {
				continue
			}
			for _, x := range slices.Compact(slices.Clone(a.loads)) {
				for _, y := range slices.Compact(slices.Clone(b.loads)) {
					if gain := s.gain(a, b, x, y); gain > best*(1+least) {
						best, from, to, give, take = gain, i, j, x, y
					}
				}
			}
		}
	}
	if from < 0 {
		return false
	}

	// Swap one device of each load.
	a, b := s.leave(from), s.leave(to)
	holds := func(load int) func(int) bool { return func(device int) bool { return s.of[device] == load } }
	x, y := slices.IndexFunc(s.nodes[a], holds(give)), slices.IndexFunc(s.nodes[b], holds(take))
	s.nodes[a][x], s.nodes[b][y] = s.nodes[b][y], s.nodes[a][x]
	s.add(a)
	s.add(b)
	return true
}

// swapGain returns the overload that a swap of two loads removes. If the busier of the two nodes would have more
// load than before, it returns 0.
func (s *spreading) gain(a, b *nodeKind, give, take int) float64 {
	var left, right traffic
	for way := range left {
		d := s.loads[take][way] - s.loads[give][way]
		left[way], right[way] = a.busy[way]+d, b.busy[way]-d
	}
	if max(left.most(), right.most()) > max(a.busy.most(), b.busy.most()) {
		return 0
	}
	return a.busy.over() + b.busy.over() - left.over() - right.over()
}

// removeNode takes the last node out of a kind.
func (s *spreading) leave(kind int) int {
	k := &s.kinds[kind]
	node := k.nodes[len(k.nodes)-1]
	k.nodes = k.nodes[:len(k.nodes)-1]
	return node
}
