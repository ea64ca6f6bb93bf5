package pool

import "math"

// bundleRounder makes a choice of one bundle of each model from parts of bundles, by swaps.
type settling struct {
	choices []bundle
	price   []float64 // by bundle
	room    []float64 // by pool: devices that may be used
	worth   []float64 // by pool: worth of one device
	moves   float64   // most devices that may move
	penalty float64   // cost of one moved device too many
	at      []int     // by model: index of its bundle
	use     []float64 // by pool: devices that the chosen bundles take
	move    float64   // devices that the chosen bundles move
}

// maxSwaps bounds the number of swaps.
const swaps = 400

// round swaps one bundle at a time until the chosen ones fit the devices, and returns them. If they do not fit
// in the end, it returns nil.
func (s *settling) settle() []int {
	for range swaps {
		if !s.one() {
			break
		}
	}
	if s.over(s.use, s.move) > 0 {
		return nil
	}
	return s.at
}

// excessCost returns the worth of what is used beyond the devices, plus the penalty for moves beyond the limit.
func (s *settling) over(use []float64, move float64) float64 {
	sum := max(move-s.moves-1e-9, 0) * s.penalty
	for k, v := range use {
		if x := v - s.room[k]; x > 1e-9 {
			sum += x * s.worth[k]
		}
	}
	return sum
}

// minSwapGain is the gain that a swap must exceed.
const least = 1e-12

// swapBest makes the best swap of a single bundle. If none is an improvement, it returns false.
func (s *settling) one() bool {
	base := s.over(s.use, s.move)
	best, gain := -1, least
	use := make([]float64, len(s.use))

	// The gain of a swap is the excess that it removes. Without excess it is the price that it saves.
	for i := range s.choices {
		b := &s.choices[i]
		old := s.at[b.model]
		if i == old {
			continue
		}
		move := s.with(use, s.use, s.move, old, i)
		g := base - s.over(use, move) + (s.price[old]-s.price[i])*least*1e3
		if base == 0 {
			if g < 0 {
				continue
			}
			g = s.price[old] - s.price[i]
		}
		if g > gain {
			best, gain = i, g
		}
	}
	if best < 0 {
		return false
	}
	s.swap(best)
	return true
}

// useAfterSwap computes into result the devices of each pool after one bundle replaced another, and returns the
// devices that move then.
func (s *settling) with(to, use []float64, move float64, old, new int) float64 {
	a, b := &s.choices[old], &s.choices[new]
	for k := range to {
		to[k] = use[k] - a.use[k] + b.use[k]
	}
	return move - a.move + b.move
}

// applySwap replaces the bundle of a model by bundle i.
func (s *settling) swap(i int) {
	old := s.at[s.choices[i].model]
	s.move = s.with(s.use, s.use, s.move, old, i)
	s.at[s.choices[i].model] = i
}

// newBundleRounder starts from parts of bundles: it takes the bundle of each model that has the largest part.
func (x *bundling) settling(choices []bundle, parts []float64, w *wish) *settling {
	s := &settling{choices: choices, at: make([]int, len(x.Models)), use: make([]float64, len(x.Pools)), moves: math.Inf(1)}
	total := 0.0
	for _, v := range x.lp.price {
		total += v
	}
	for k, v := range x.lp.price {
		s.worth = append(s.worth, max(v, total*1e-3)/float64(max(x.Pools[k].Count, 1)))
		s.room = append(s.room, float64(x.Pools[k].Count)-w.idle[k])
	}
	if x.stay != nil {
		s.moves, s.penalty = w.most, total/float64(x.devices())
	}

	// The bundle of each model with the largest part.
	for d := range s.at {
		s.at[d] = -1
	}
	for i := range choices {
		b := &choices[i]
		price, _ := x.price(b, w)
		s.price = append(s.price, price)
		if at := s.at[b.model]; at < 0 || parts[i] > parts[at] {
			s.at[b.model] = i
		}
	}

	// What these bundles take.
	for _, i := range s.at {
		for k, v := range choices[i].use {
			s.use[k] += v
		}
		s.move += choices[i].move
	}
	return s
}
