package verify

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Limits of the search for single cascades that exceed a bound: number of cascades, and of steps, each of which
// computes about one load.
const (
	maxSingles = 200_000
	maxSteps   = 5_000_000
)

// cascadeLoad is a cascade with the seconds of work per request that it brings, in all and by model.
type load struct {
	accuracy, total float64
	byModel         []float64
}

// singleSearch searches for the placement of one kind's devices that reaches the most accuracy, if each range has
// one cascade and not a mixture.
type singles struct {
	relaxation
	list    []load    // the most accurate first
	first   []int     // by range: index of the first cascade that all devices together have time for
	sets    []uint32  // maximal sets of models that fit on a device
	counts  []int     // number of devices with each set
	holding []float64 // by set of models: number of devices that hold at least one of them
	left    int       // steps that may still be taken
	most    float64   // found so far, weighted over the ranges
}

// bestSingleCascades returns the best accuracy above a limit of one cascade per range, on any placement of so many
// devices of a kind. Devices have time for a cascade if, for every set of models, its work is at most the time of
// the devices that hold at least one of them. If nothing above the limit is found within the steps, or there are
// too many cascades, it returns negative infinity.
func (c relaxation) singleGears(kind string, devices int, limit float64) float64 {
	s := &singles{relaxation: c, left: maxSteps, most: limit}
	if !s.cascades(kind, devices) {
		return math.Inf(-1)
	}
	s.counts, s.holding = make([]int, len(s.sets)), make([]float64, 1<<len(s.list[0].byModel))
	s.place(0, devices)
	if s.most > limit {
		return s.most
	}
	return math.Inf(-1)
}

// listCascades sets the cascades, the first feasible one of each range, and the sets of models. It returns false
// if some range has no cascade, or if there are too many.
func (s *singles) cascades(kind string, devices int) bool {
	names, grid := s.members()
	if math.Pow(float64(grid), float64(len(names))) > maxSingles*float64(grid-1) {
		return false
	}
	lowest := s.gear.Gears[0].ToQPS
	w := s.walk(s.gear.SLOUS.D(), false, func(total, accuracy float64, byModel []float64) {
		if total*lowest <= float64(devices) {
			s.list = append(s.list, load{accuracy, total, slices.Clone(byModel)})
		}
	}, kind)
	if w == nil || len(s.list) == 0 {
		return false
	}
	slices.SortFunc(s.list, func(a, b load) int {
		return cmp.Or(cmp.Compare(b.accuracy, a.accuracy), cmp.Compare(a.total, b.total))
	})
	for i := range s.gear.Gears {
		at := slices.IndexFunc(s.list, func(l load) bool { return l.total*s.gear.Gears[i].ToQPS <= float64(devices) })
		if at < 0 {
			return false
		}
		s.first = append(s.first, at)
	}
	s.configurations(names, kind, w.per)
	return len(s.sets) > 0
}

// listSets sets the maximal sets of models that fit on a device of a kind together.
func (s *singles) configurations(names []string, kind string, per []float64) {
	pool := s.Pool(kind)
	fits := func(set uint32) bool {
		need := int64(0)
		for m, n := range names {
			switch {
			case set&(1<<m) == 0:
			case math.IsInf(per[m], 1):
				return false
			default:
				need += s.weights(n, kind)
			}
		}
		return pool.Memory == 0 || need <= int64(pool.Memory)
	}
	for set := uint32(1); set < 1<<len(names); set++ {
		full := fits(set)
		for m := range names {
			full = full && (set&(1<<m) != 0 || !fits(set|1<<m))
		}
		if full {
			s.sets = append(s.sets, set)
		}
	}
}

// placeSets tries all ways to give so many devices the sets from an index on.
func (s *singles) place(set, devices int) {
	if set+1 < len(s.sets) {
		for n := 0; n <= devices && s.left > 0; n++ {
			s.counts[set] = n
			s.place(set+1, devices-n)
		}
		return
	}

	// All sets are placed: count the devices that hold some model of each set of models.
	s.counts[set] = devices
	s.left -= len(s.sets)
	for models := range s.holding {
		s.holding[models] = 0
		for i, held := range s.sets {
			if held&uint32(models) != 0 {
				s.holding[models] += float64(s.counts[i])
			}
		}
	}
	s.most = max(s.most, s.placed())
}

// placementAccuracy returns the accuracy of the best cascades that the placement has time for, or negative
// infinity if it does not exceed the best one found so far.
func (s *singles) placed() float64 {
	// remainingBest bounds what the ranges that follow may add.
	sum, rest, at := 0.0, 0.0, 0
	for i, first := range s.first {
		rest += s.gear.Gears[i].Weight * s.list[first].accuracy
	}
	for i, first := range s.first {
		r := &s.gear.Gears[i]
		rest -= r.Weight * s.list[first].accuracy
		at = max(at, first) // rates rise, so no range is more accurate than the one before
		for at < len(s.list) && !s.hold(s.list[at].byModel, r.ToQPS) {
			at++
		}
		if at == len(s.list) || s.left <= 0 || sum+r.Weight*s.list[at].accuracy+rest <= s.most {
			return math.Inf(-1)
		}
		sum += r.Weight * s.list[at].accuracy
	}
	return sum
}

// hasTimeFor reports whether the placement's devices have time for a cascade at a rate. It checks every set of the
// models that the cascade asks (Hall's condition).
func (s *singles) hold(byModel []float64, rate float64) bool {
	s.left--
	asked := uint32(0)
	for m, t := range byModel {
		if t > 0 {
			asked |= 1 << m
		}
	}
	for set := asked; set > 0; set = (set - 1) & asked {
		work := 0.0
		for rest := set; rest > 0; rest &= rest - 1 {
			work += byModel[bits.TrailingZeros32(rest)]
		}
		if work*rate > s.holding[set]*(1-1e-9) {
			return false
		}
	}
	return true
}
