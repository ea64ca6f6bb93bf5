package balance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Group is machines that take the same kinds of work.
type Group struct {
	Takes uint32 // a bit per kind
	Count int
}

// Machines are identical machines, numbered group by group.
type Machines struct {
	groups []Group
	taking []int // by set of kinds: machines that take one of them
}

// NewMachines are groups of machines for so many kinds of work.
func NewMachines(kinds int, groups []Group) *Machines {
	m := &Machines{groups: groups, taking: make([]int, 1<<kinds)}
	for set := range m.taking {
		for _, g := range groups {
			if g.Takes&uint32(set) != 0 {
				m.taking[set] += g.Count
			}
		}
	}
	return m
}

// Taking lists the machines of groups that take a kind of work.
func Taking(groups []Group, kind int) (list []int) {
	first := 0
	for _, g := range groups {
		for n := range g.Count {
			if g.Takes&(1<<kind) != 0 {
				list = append(list, first+n)
			}
		}
		first += g.Count
	}
	return list
}

// Load is that of the busiest machine under the best split of the work of every kind: the
// largest ratio, over sets of kinds, of their work to the machines that take one of them. It
// is infinite where no machine takes a kind that has work.
func (m *Machines) Load(work []float64) float64 {
	support := uint32(0)
	for kind, w := range work {
		if w > 0 {
			support |= 1 << kind
		}
	}
	most := 0.0
	for set := support; set > 0; set = (set - 1) & support {
		total := 0.0
		for rest := set; rest > 0; rest &= rest - 1 {
			total += work[bits.TrailingZeros32(rest)]
		}
		if n := m.taking[set]; n > 0 {
			most = max(most, total/float64(n))
		} else {
			return math.Inf(1)
		}
	}
	return most
}

// Split shares the work of every kind over the machines that take it so that the busiest
// machine has the least load: each kind in turn levels what the others leave. It returns
// the shares by kind, over the machines that Taking lists, and the loads by machine.
func (m *Machines) Split(work []float64) (shares [][]float64, loads []float64) {
	n := 0
	for _, g := range m.groups {
		n += g.Count
	}
	loads = make([]float64, n)
	machines := make([][]int, len(work))
	shares = make([][]float64, len(work)) // as flows until the end
	for kind := range work {
		machines[kind] = Taking(m.groups, kind)
		shares[kind] = make([]float64, len(machines[kind]))
	}
	const rounds = 2000
	for range rounds {
		moved := 0.0
		for kind, w := range work {
			if w > 0 && len(machines[kind]) > 0 {
				moved = max(moved, level(w, machines[kind], shares[kind], loads)/w)
			}
		}
		if moved < 1e-12 {
			break
		}
	}
	for kind := range work {
		toShares(shares[kind])
	}
	return shares, loads
}

// toShares divides flows by their sum, which is the work but for rounding. It makes them even
// parts where there is none.
func toShares(flows []float64) {
	total := 0.0
	for _, f := range flows {
		total += f
	}
	for k := range flows {
		if total > 0 {
			flows[k] /= total
		} else {
			flows[k] = 1 / float64(len(flows))
		}
	}
}

// level takes a kind's flow off its machines and pours it again where the loads are lowest.
// It returns the largest change.
func level(w float64, machines []int, flow, loads []float64) float64 {
	order := make([]int, len(machines))
	for k, d := range machines {
		order[k] = k
		loads[d] -= flow[k]
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(loads[machines[a]], loads[machines[b]]), cmp.Compare(a, b))
	})
	total, surface := 0.0, 0.0
	for i, k := range order {
		total += loads[machines[k]]
		surface = (w + total) / float64(i+1)
		if i+1 == len(order) || surface <= loads[machines[order[i+1]]] {
			break
		}
	}
	moved := 0.0
	for k, d := range machines {
		f := max(0, surface-loads[d])
		moved = max(moved, math.Abs(f-flow[k]))
		flow[k] = f
		loads[d] += f
	}
	return moved
}
