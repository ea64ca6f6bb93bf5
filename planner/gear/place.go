package gear

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// placing puts the models of a problem on identical devices.
type placing struct{ *Problem }

// configurations are the maximal sets of usable models that fit on a device
// together, as bit sets in rising order.
func (p placing) configurations() []uint32 {
	usable := p.usable()
	fits := func(set uint32) bool {
		for rest := set; rest > 0; rest &= rest - 1 {
			if !usable[bits.TrailingZeros32(rest)] {
				return false
			}
		}
		return p.Memory == 0 || p.MemoryOf(set) <= p.Memory
	}
	var out []uint32
	for set := uint32(1); set < 1<<len(p.Models); set++ {
		if !fits(set) {
			continue
		}
		maximal := true
		for m := range p.Models {
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

// MemoryOf is the memory that a set of models takes.
func (p *Problem) MemoryOf(set uint32) int64 {
	total := int64(0)
	for ; set > 0; set &= set - 1 {
		total += p.Models[bits.TrailingZeros32(set)].Memory
	}
	return total
}

// Placement is how many devices hold which configuration; devices are numbered
// configuration by configuration.
type Placement struct {
	Sets   []uint32
	Counts []int
	holds  []int // by set of models: devices that hold one of them
}

// NewPlacement is the placement of sets of a family's models on counts of devices.
func NewPlacement(models int, sets []uint32, counts []int) *Placement {
	pl := &Placement{Sets: sets, Counts: slices.Clone(counts), holds: make([]int, 1<<models)}
	for set := range pl.holds {
		for i, s := range sets {
			if s&uint32(set) != 0 {
				pl.holds[set] += counts[i]
			}
		}
	}
	return pl
}

// DevicesOf lists the devices that hold a model.
func (pl *Placement) DevicesOf(model int) []int { return devicesWith(pl.configs(), 0, model) }

func (pl *Placement) configs() []Config {
	out := make([]Config, len(pl.Sets))
	for i, set := range pl.Sets {
		out[i] = Config{Set: set, Count: pl.Counts[i]}
	}
	return out
}

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
	for _, c := range pl.Counts {
		n += c
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

// maxCompositions bounds the counts of configurations that are all tried; above
// it the best is searched by moving single devices.
const maxCompositions = 20000

// candidate is a placement with its score over the ranges.
type candidate struct {
	pl       *Placement
	feasible int       // ranges with a cascade that fits
	ranges   []float64 // their accuracies
	accuracy float64   // weighted
}

func (c *candidate) compare(o *candidate) int {
	return cmp.Or(cmp.Compare(o.feasible, c.feasible), cmp.Compare(o.accuracy, c.accuracy))
}

// best ranks placements by what the fluid model lets each range do: the
// most accurate cascade with u* <= 1 at the range's upper edge, weighted.
func (p placing) best(list []Cascade, work [][]float64, keep int) []*Placement {
	var out []*Placement
	for _, c := range p.ranked(list, work, keep) {
		out = append(out, c.pl)
	}
	return out
}

// ranked are the best placements with their scores.
func (p placing) ranked(list []Cascade, work [][]float64, keep int) []*candidate {
	sets := p.configurations()
	best := undominated(list, work)
	if len(sets) == 1 { // the total decides
		best = Pareto(totals(work), list)
		slices.Reverse(best)
	}
	score := func(counts []int) *candidate {
		c := &candidate{pl: NewPlacement(len(p.Models), sets, counts)}
		at := 0
		for r, edge := range p.Edges { // rising rates: the best index never comes down
			for at < len(best) && c.pl.Load(work[best[at]])*edge > 1 {
				at++
			}
			if at == len(best) {
				break
			}
			c.feasible++
			a := accuracyOn(p.Problem, &list[best[at]])
			c.ranges = append(c.ranges, a)
			c.accuracy += p.Weights[r] * a
		}
		return c
	}
	var top []*candidate
	add := func(c *candidate) {
		at, _ := slices.BinarySearchFunc(top, c, func(a, b *candidate) int {
			return cmp.Or(a.compare(b), -1) // behind equals: the first stands
		})
		if at < keep {
			top = slices.Insert(top, at, c)[:min(keep, len(top)+1)]
		}
	}
	if p.allTried() {
		counts := make([]int, len(sets))
		eachComposition(counts, 0, p.Devices, func() { add(score(counts)) })
	} else {
		p.climb(sets, score, add)
	}
	return top
}

// allTried tells whether all placements are ranked, so that none is better than the first.
func (p placing) allTried() bool {
	return compositions(p.Devices, len(p.configurations())) <= maxCompositions
}

// compositions is the number of ways to give n devices k configurations: C(n+k-1, k-1).
func compositions(n, k int) float64 {
	c := 1.0
	for i := 1; i < k; i++ {
		c = c * float64(n+i) / float64(i)
	}
	return c
}

func eachComposition(counts []int, at, left int, visit func()) {
	if at == len(counts)-1 {
		counts[at] = left
		visit()
		return
	}
	for n := range left + 1 {
		counts[at] = n
		eachComposition(counts, at+1, left-n, visit)
	}
}

// climb moves single devices between configurations while that helps, from an
// even spread and from each configuration alone.
func (p placing) climb(sets []uint32, score func([]int) *candidate, add func(*candidate)) {
	starts := [][]int{make([]int, len(sets))}
	for d := range p.Devices {
		starts[0][d%len(sets)]++
	}
	for i := range sets {
		one := make([]int, len(sets))
		one[i] = p.Devices
		starts = append(starts, one)
	}
	for _, counts := range starts {
		best := score(counts)
		for improved := true; improved; {
			improved = false
			for step := p.Devices; step >= 1; step /= 2 {
				for from := range sets {
					for to := range sets {
						if from == to || counts[from] < step {
							continue
						}
						counts[from] -= step
						counts[to] += step
						if c := score(counts); c.compare(best) < 0 {
							best, improved = c, true
						} else {
							counts[from] += step
							counts[to] -= step
						}
					}
				}
			}
		}
		add(best)
	}
}
