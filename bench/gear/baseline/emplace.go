package baseline

import (
	"cmp"
	"slices"
)

// place (SP3) prunes replicas until everything fits in memory, and checks the
// load. An error of SP4 asks for one more replica of its bottleneck.
func (e *em) place(wrong *fault) *fault {
	p := e.p
	if wrong != nil {
		have := 0
		if wrong.model >= 0 {
			have = len(e.pl.DevicesOf(wrong.model))
		}
		if wrong.model < 0 || have >= p.Kinds[0].Devices {
			return &fault{span: wrong.span, model: -1}
		}
		e.pins[wrong.model] = have + 1
	}
	pl, ok := e.prune()
	if !ok {
		if wrong == nil {
			r := e.busiest(e.full)
			return &fault{span: r, model: -1, any: true}
		}
		return &fault{span: wrong.span, model: -1}
	}
	e.pl = pl
	if r := e.busiest(pl); pl.Load(e.work[e.at[r]])*p.RangeEdges[r] > 1 {
		return &fault{span: r, model: -1}
	}
	return nil
}

// busiest is the range with the highest load on a placement.
func (e *em) busiest(pl *Placement) int {
	at, most := 0, -1.0
	for r, i := range e.at {
		if u := pl.Load(e.work[i]) * e.p.RangeEdges[r]; u > most {
			at, most = r, u
		}
	}
	return at
}

// prune takes the replica of the highest utility (Equation 4, corrected) from a
// device that holds too much, until none does.
func (e *em) prune() (*Placement, bool) {
	p := e.p
	n := len(p.Models)
	sets := make([]uint32, p.Kinds[0].Devices)
	replicas := make([]int, n)
	for d := range sets {
		sets[d] = e.full.Configs[0].ModelSet
	}
	needed := uint32(0)
	for _, i := range e.at {
		for _, m := range e.list[i].Models {
			needed |= 1 << m
		}
	}
	for m := range n {
		if e.full.Configs[0].ModelSet&(1<<m) != 0 {
			replicas[m] = p.Kinds[0].Devices
		}
	}
	for {
		device, model, most := -1, -1, 0.0
		tried := map[uint32]bool{} // devices that hold the same are the same
		for d, set := range sets {
			over := MemoryOf(p, set) - p.Kinds[0].Memory
			if p.Kinds[0].Memory == 0 || over <= 0 || tried[set] {
				continue
			}
			tried[set] = true
			for m := range n {
				one := uint32(1) << m
				least := e.pins[m]
				if needed&one != 0 {
					least = max(least, 1)
				}
				if set&one == 0 || replicas[m] <= least {
					continue
				}
				sets[d] = set &^ one
				u := e.highest(grouped(n, sets), m)
				sets[d] = set
				if utility := float64(min(over, p.Models[m].Variants[0].Memory)) / max(u, 1e-6); utility > most {
					device, model, most = d, m, utility
				}
			}
		}
		if device < 0 {
			break
		}
		sets[device] &^= 1 << model
		replicas[model]--
	}
	for _, set := range sets {
		if p.Kinds[0].Memory > 0 && MemoryOf(p, set) > p.Kinds[0].Memory {
			return nil, false
		}
	}
	return grouped(n, sets), true
}

// highest is the load of the busiest device over the ranges that use a model.
func (e *em) highest(pl *Placement, model int) float64 {
	most := 0.0
	for r, i := range e.at {
		if e.work[i][model] > 0 {
			most = max(most, pl.Load(e.work[i])*e.p.RangeEdges[r])
		}
	}
	return most
}

// grouped is the placement of devices that each hold a set of models.
func grouped(models int, devices []uint32) *Placement {
	sorted := slices.Clone(devices)
	slices.SortFunc(sorted, func(a, b uint32) int { return cmp.Compare(b, a) })
	var counts []int
	for i, set := range sorted {
		if i == 0 || set != sorted[i-1] {
			counts = append(counts, 0)
		}
		counts[len(counts)-1]++
	}
	return newPlacement(models, slices.Compact(sorted), counts)
}

// keyOf names a placement.
func keyOf(pl *Placement) string {
	var b []byte
	for _, c := range pl.Configs {
		b = append(b, byte(c.ModelSet), byte(c.ModelSet>>8), byte(c.Count), byte(c.Count>>8))
	}
	return string(b)
}
