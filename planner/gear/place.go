package gear

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// maximalSets are the maximal sets of items that fit into memory together, as bit sets in
// rising order. Of an item it says what that takes; below 0: it is in no set. No limit: 0.
func maximalSets(memory []int64, limit int64) (out []uint32) {
	fits := func(set uint32) bool {
		total := int64(0)
		for rest := set; rest > 0; rest &= rest - 1 {
			one := memory[bits.TrailingZeros32(rest)]
			if total += one; one < 0 {
				return false
			}
		}
		return limit == 0 || total <= limit
	}
	for set := uint32(1); set < 1<<len(memory); set++ {
		if !fits(set) {
			continue
		}
		maximal := true
		for m := range memory {
			if one := uint32(1) << m; set&one == 0 && fits(set|one) {
				maximal = false
			}
		}
		if maximal {
			out = append(out, set)
		}
	}
	return out
}

// Config is how many devices of a kind hold the same models.
type Config struct {
	Kind  int
	Set   uint32
	Count int
}

// devicesWith are the devices of a kind that hold a model. Devices are numbered within
// their kind, configuration by configuration.
func devicesWith(configs []Config, kind, model int) (list []int) {
	first := 0
	for _, c := range configs {
		if c.Kind != kind {
			continue
		}
		for d := range c.Count {
			if c.Set&(1<<model) != 0 {
				list = append(list, first+d)
			}
		}
		first += c.Count
	}
	return list
}

// Replicas are the devices of a kind that hold a model.
func (out *Outcome) Replicas(model, kind int) []int { return devicesWith(out.Configs, kind, model) }

// Placement is what identical devices hold. Loads and splits on them need no linear
// programs.
type Placement struct {
	Configs []Config
	holds   []int // by set of models: devices that hold one of them
}

// NewPlacement is the placement of sets of a family's models on counts of devices.
func NewPlacement(models int, sets []uint32, counts []int) *Placement {
	var configs []Config
	for i, n := range counts {
		configs = append(configs, Config{Set: sets[i], Count: n})
	}
	return placementOf(models, configs)
}

func placementOf(models int, configs []Config) *Placement {
	pl := &Placement{Configs: configs, holds: make([]int, 1<<models)}
	for set := range pl.holds {
		for _, c := range configs {
			if c.Set&uint32(set) != 0 {
				pl.holds[set] += c.Count
			}
		}
	}
	return pl
}

// DevicesOf lists the devices that hold a model.
func (pl *Placement) DevicesOf(model int) []int { return devicesWith(pl.Configs, 0, model) }

// Load is u*, the load of the busiest device under the best split, of work that
// the models bring per unit of time: the largest ratio, over sets of models, of
// their work to the devices that hold one of them. (Max-flow min-cut for
// identical devices.) It is infinite where a model with work is nowhere.
func (pl *Placement) Load(work []float64) float64 {
	support := uint32(0)
	for m, w := range work {
		if w > 0 {
			support |= 1 << m
		}
	}
	most := 0.0
	for set := support; set > 0; set = (set - 1) & support {
		total := 0.0
		for rest := set; rest > 0; rest &= rest - 1 {
			total += work[bits.TrailingZeros32(rest)]
		}
		if n := pl.holds[set]; n > 0 {
			most = max(most, total/float64(n))
		} else {
			return math.Inf(1)
		}
	}
	return most
}

// loads are those of works.
func (pl *Placement) loads(work [][]float64) []float64 {
	out := make([]float64, len(work))
	for i := range work {
		out[i] = pl.Load(work[i])
	}
	return out
}

// Split shares every model's work over its devices so that the busiest device
// has the least load: each model in turn levels what the others leave (cyclic
// water-filling). It returns the shares over DevicesOf the model, and the loads.
func (pl *Placement) Split(work []float64) (shares [][]float64, loads []float64) {
	n := 0
	for _, c := range pl.Configs {
		n += c.Count
	}
	loads = make([]float64, n)
	devices := make([][]int, len(work))
	shares = make([][]float64, len(work)) // as flows until the end
	for m := range work {
		devices[m] = pl.DevicesOf(m)
		shares[m] = make([]float64, len(devices[m]))
	}
	const rounds = 2000
	for range rounds {
		moved := 0.0
		for m, w := range work {
			if w > 0 && len(devices[m]) > 0 {
				moved = max(moved, level(w, devices[m], shares[m], loads)/w)
			}
		}
		if moved < 1e-12 {
			break
		}
	}
	for m := range work {
		inParts(shares[m])
	}
	return shares, loads
}

// inParts divides flows by their sum, which is the work but for rounding; even parts where
// there is none.
func inParts(flows []float64) {
	total := sum(flows)
	for k := range flows {
		if total > 0 {
			flows[k] /= total
		} else {
			flows[k] = 1 / float64(len(flows))
		}
	}
}

// level takes a model's flow off its devices and pours it again where the loads
// are lowest. It returns the largest change.
func level(w float64, devices []int, flow, loads []float64) float64 {
	order := make([]int, len(devices))
	for k, d := range devices {
		order[k] = k
		loads[d] -= flow[k]
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(loads[devices[a]], loads[devices[b]]), cmp.Compare(a, b))
	})
	total, surface := 0.0, 0.0
	for i, k := range order {
		total += loads[devices[k]]
		surface = (w + total) / float64(i+1)
		if i+1 == len(order) || surface <= loads[devices[order[i+1]]] {
			break
		}
	}
	moved := 0.0
	for k, d := range devices {
		f := max(0, surface-loads[d])
		moved = max(moved, math.Abs(f-flow[k]))
		flow[k] = f
		loads[d] += f
	}
	return moved
}
