package verify

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Of the search for single gears that exceed a bound: the cascades that are looked at at
// most, and the steps it takes, each about a load that is computed.
const (
	maxSingles = 200_000
	maxSteps   = 5_000_000
)

// load is a cascade with what it asks of the devices, in seconds per request.
type load struct {
	accuracy, total float64
	byModel         []float64
}

// singles looks for the best placement of one kind's devices, where a range has one
// cascade, not a mixture.
type singles struct {
	relaxation
	list    []load    // the most accurate first
	first   []int     // by range: the first of the list that all devices together have the time for
	sets    []uint32  // of models that a device holds, none of which has room for another
	counts  []int     // devices by set
	holding []float64 // by set of models: devices that hold one of them
	left    int       // steps that may yet be taken
	most    float64   // by weight over the ranges
}

// singleGears are the best accuracy above a limit of one cascade per range on any placement
// of so many devices of a kind. Devices have the time for it at every upper edge: whatever
// the split, no set of models brings more work than the devices that hold one of them do.
// -Inf: there is none, none was found within the steps, or there are too many cascades.
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

// cascades lists them and the sets of models that devices hold; false where some range has
// none, or they are too many.
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

// configurations are the sets of models that fit on a device of a kind together and have
// no room for another.
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

// place gives the sets from one on so many devices, in all ways.
func (s *singles) place(set, devices int) {
	if set+1 < len(s.sets) {
		for n := 0; n <= devices && s.left > 0; n++ {
			s.counts[set] = n
			s.place(set+1, devices-n)
		}
		return
	}
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

// placed is the accuracy of the best cascades that the placement has the time for; -Inf
// where it is no more than was found.
func (s *singles) placed() float64 {
	sum, rest, at := 0.0, 0.0, 0
	for i, first := range s.first {
		rest += s.gear.Gears[i].Weight * s.list[first].accuracy
	}
	for i, first := range s.first {
		r := &s.gear.Gears[i]
		rest -= r.Weight * s.list[first].accuracy
		at = max(at, first) // rates rise
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

// hold tells whether the placement's devices have the time for a cascade at a rate.
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
