package graph

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
)

// sizeSearch looks for the cheapest solution that attains a requested share in simulation.
//
// First, devices are added one by one, where each helps most (as in InferLine's planner, SoCC '20, section
// 5.2). Then devices are removed, the dearest first. If none can be removed, batch sizes of the solution
// with one device less change, until it attains enough or no change of one batch size helps.
type sizeSearch struct {
	p                   *problem
	requestedAttainment float64                                       // share of the requests, from 0 to 1
	changeBatches       bool                                          // batch sizes may change
	simulate            func(s *solution, hint bool) (float64, error) // returns the attainment; with hint, of the first arrivals only
	attainments         map[string]float64                            // what was simulated, by mapKey of the solution and hint
	bestSolution        *solution
	simulationErr       error // ends the search
}

const (
	// maxHintError is how far a hint may be below the attainment of all arrivals.
	maxHintError = .005
	// maxBatchShortfall: if a hint falls short by more than this, other batch sizes are not tried.
	maxBatchShortfall = .05
	// minHintGain is the least rise of the hint for which a batch size changes.
	minHintGain = 1e-4
)

// mapKey returns a text that two solutions share only if they are equal.
func (s *solution) mapKey() string { return fmt.Sprint(s.choice, s.level, s.devices) }

// cheapest returns the cheapest solution that attains enough in simulation, of those that some starts lead to:
// each first grows until it does, then shrinks while it does. If none does, it returns nil.
func (z *sizeSearch) cheapest(starts ...*solution) (*solution, error) {
	for _, s := range starts {
		if s = z.shrinkWhileEnough(z.growUntilEnough(s)); s != nil && z.simulationErr == nil {
			z.bestSolution = s
		}
	}
	return z.bestSolution, z.simulationErr
}

// isNoCheaper returns whether a solution costs at least as much as the best one.
func (z *sizeSearch) isNoCheaper(s *solution) bool {
	return z.bestSolution != nil && z.p.price(s) >= z.p.price(z.bestSolution)*(1-1e-9)
}

// attainment returns the attainment of a solution (share of requests in time) or, with hint, its hint: the attainment
// over the first arrivals only, in one cheap simulation. Each is simulated once.
func (z *sizeSearch) attainment(s *solution, hint bool) float64 {
	key := fmt.Sprint(s.mapKey(), hint)
	attained, ok := z.attainments[key]
	if !ok && z.simulationErr == nil {
		attained, z.simulationErr = z.simulate(s, hint)
		z.attainments[key] = attained
	}
	return attained
}

// attainsEnough returns whether a solution attains the requested share of requests in time in full simulation.
// It asks the hint, a short simulation, first, and gives up if that is clearly too low.
func (z *sizeSearch) attainsEnough(s *solution) bool {
	return z.attainment(s, true) >= z.requestedAttainment-maxHintError && z.attainment(s, false) >= z.requestedAttainment && z.simulationErr == nil
}

// growUntilEnough adds devices to a solution one by one, each where the hint (attainment in a short simulation) rises most, or changes
// batch sizes, until it attains the requested share in simulation, and returns it. shrinkWhileEnough then removes devices, so a solution
// that attains enough is returned even if it is as dear as the best one. It returns nil if there are no further devices, once a solution
// that does not attain enough is as dear as the best one, or if a simulation fails (simulationErr).
func (z *sizeSearch) growUntilEnough(s *solution) *solution {
	for s != nil && z.simulationErr == nil {
		// A solution as dear as the best one is of use only if it attains enough and a device can be removed. neighbours with -1 has the
		// solutions with one device less, with 1 those with one more.
		noCheaper := z.isNoCheaper(s)
		if noCheaper && len(z.neighbours(s, -1)) == 0 {
			return nil
		}
		if z.attainsEnough(s) {
			return s
		}
		if noCheaper {
			return nil
		}
		if rebatched := z.rebatchUntilEnough(s); rebatched != nil {
			return rebatched
		}
		s = z.bestByHint(z.neighbours(s, 1))
	}
	return nil
}

// shrinkWhileEnough removes devices from a solution, one at a time, as long as it attains enough in simulation.
// It returns nil if the result is no cheaper than the best solution.
func (z *sizeSearch) shrinkWhileEnough(s *solution) *solution {
	for s != nil && z.simulationErr == nil {
		smaller := z.neighbours(s, -1)

		// Remove the dearest device that can be spared. If there is none, remove the device whose loss
		// hurts least and try other batch sizes.
		replacement := (*solution)(nil)
		if i := slices.IndexFunc(smaller, z.attainsEnough); i >= 0 {
			replacement = smaller[i]
		} else if bestSmaller := z.bestByHint(smaller); bestSmaller != nil {
			replacement = z.rebatchUntilEnough(bestSmaller)
		}
		if replacement == nil {
			break
		}
		s = replacement
	}
	if s == nil || z.isNoCheaper(s) {
		return nil
	}
	return s
}

// bestByHint returns, from a list, the solution of the highest hint (attainment in a short simulation). If the
// list is empty, it returns nil.
func (z *sizeSearch) bestByHint(list []*solution) *solution {
	bestSolution, maxHint := (*solution)(nil), math.Inf(-1)
	for _, s := range list {
		if x := z.attainment(s, true); x > maxHint {
			bestSolution, maxHint = s, x
		}
	}
	return bestSolution
}

// rebatchUntilEnough changes the batch size of one model after another as long as the hint (attainment in a short simulation) rises, and
// returns the first solution that attains the requested share in full simulation. If it finds none, or batches may not change, or the
// hint is too low from the start (maxBatchShortfall), it returns nil. The devices stay.
func (z *sizeSearch) rebatchUntilEnough(s *solution) *solution {
	for improved := z.changeBatches && z.attainment(s, true) >= z.requestedAttainment-maxBatchShortfall; improved && z.simulationErr == nil; {
		improved = false
		for u := range z.p.models {
			// Step towards larger batches of the model, then towards smaller ones, while the hint rises.
			for _, delta := range []int{1, -1} {
				for {
					neighbour := z.p.withNeighbourBatch(s, u, delta)
					if neighbour == nil || z.attainment(neighbour, true) <= z.attainment(s, true)+minHintGain {
						break
					}
					s, improved = neighbour, true
				}
			}
		}
		if improved && z.attainsEnough(s) {
			return s
		}
	}
	return nil
}

// withNeighbourBatch returns the solution with the next larger (delta 1) or smaller (delta -1) batch size of model u, if it can keep all
// deadlines and carry the rates. To make time for a larger one, the batches of other models shrink, first that of the model whose
// capacity then is the largest multiple of its rate. If no such solution exists, it returns nil.
func (p *problem) withNeighbourBatch(s *solution, u, delta int) *solution {
	t := p.withNextLevel(s, u, delta)
	if t == nil || !p.carriesRate(t, u) {
		return nil
	}
	for t != nil && !p.keepsDeadlines(t) {
		shrunk, maxSpare := (*solution)(nil), 0.
		for v, rate := range p.modelRates(s) {
			if v == u || rate == 0 {
				continue
			}
			if o := p.withNextLevel(t, v, -1); o != nil && p.carriesRate(o, v) && p.capacity(o, v)/rate > maxSpare {
				shrunk, maxSpare = o, p.capacity(o, v)/rate
			}
		}
		t = shrunk
	}
	return t
}

// withNextLevel returns the solution with the next level of model u (a limit on its batch times, which fixes its batch sizes), up (delta
// 1) or down (-1), at which its devices run other templates. If that level does not exist, or some of the devices cannot run it, it
// returns nil.
func (p *problem) withNextLevel(s *solution, u, delta int) *solution {
	if s.level[u] < 0 {
		return nil
	}
	t := *s
	t.level = slices.Clone(s.level)

	// Skip levels that change nothing on the pools where the model has devices.
	previousTemplates := p.models[u].levels[s.level[u]].templates
	for t.level[u] += delta; t.level[u] >= 0 && t.level[u] < len(p.models[u].levels); t.level[u] += delta {
		nextTemplates := p.models[u].levels[t.level[u]].templates
		unchanged := true
		for k, n := range s.devices[u] {
			if n > 0 && nextTemplates[k].rate == 0 {
				return nil
			}
			unchanged = unchanged && (n == 0 || nextTemplates[k] == previousTemplates[k])
		}
		if !unchanged {
			return &t
		}
	}
	return nil
}

// carriesRate returns whether the devices of model u carry its rate.
func (p *problem) carriesRate(s *solution, u int) bool {
	return p.capacity(s, u) >= p.modelRates(s)[u]*(1-1e-9)
}

// neighbours returns the solutions with one device more (delta 1) or less (delta -1) of a pool that a model has devices of, as far as the
// pool has so many and the rates are carried. Those that change the dearest device come first.
func (z *sizeSearch) neighbours(s *solution, delta int) []*solution {
	type change struct {
		s     *solution
		price float64
	}

	// Change one number of devices at a time, and keep what is possible.
	var list []change
	for u := range s.devices {
		for k, n := range s.devices[u] {
			if n == 0 {
				continue
			}
			t, poolDevices := *s, 0
			t.devices = slices.Clone(s.devices)
			t.devices[u] = slices.Clone(s.devices[u])
			t.devices[u][k] += delta
			poolDevices += lists.Sum(len(t.devices), func(v int) int { return t.devices[v][k] })
			if poolDevices <= z.p.pools[k].count && z.p.carriesRate(&t, u) {
				list = append(list, change{&t, z.p.pools[k].price})
			}
		}
	}

	// Sort by the price of the device, the dearest first.
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(b.price, a.price) })
	return lists.Map(len(list), func(i int) *solution { return list[i].s })
}
