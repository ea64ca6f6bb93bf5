package bundles

import (
	"math"

	"inferplan/planner/lists"
)

// bundleRounder makes a choice of one bundle of each model from parts of bundles, by swaps.
type bundleRounder struct {
	choices          []bundle
	bundlePrices     []float64 // by bundle: its cost in the program (bundlePrice)
	availableDevices []float64 // by pool: devices that may be used
	devicePrices     []float64 // by pool: worth of one device
	maxMoved         float64   // most devices that may move
	movePenalty      float64   // cost of one moved device too many
	chosen           []int     // by model: index of its bundle
	usedDevices      []float64 // by pool: devices that the chosen bundles take
	movedDevices     float64   // devices that the chosen bundles move
}

// maxSwaps bounds the number of swaps.
const maxSwaps = 400

// round swaps one bundle (pipelines of one model) for another of the same model, time after time, until the
// chosen ones fit the devices and no swap makes them cheaper. It returns the chosen bundle of each model. If
// they do not fit in the end, it returns nil.
func (s *bundleRounder) round() []int {
	for range maxSwaps {
		if !s.swapBest() {
			break
		}
	}
	if s.excessCost(s.usedDevices, s.movedDevices) > 0 {
		return nil
	}
	return s.chosen
}

// excessCost returns by how much a choice of bundles exceeds its limits, as a cost: the worth of the devices
// used beyond those of each pool, plus a penalty for devices moved beyond the limit. It is 0 if the choice
// fits.
func (s *bundleRounder) excessCost(devices []float64, moved float64) float64 {
	cost := max(moved-s.maxMoved-1e-9, 0) * s.movePenalty
	for k, v := range devices {
		if excess := v - s.availableDevices[k]; excess > 1e-9 {
			cost += excess * s.devicePrices[k]
		}
	}
	return cost
}

// minSwapGain is the gain that a swap must exceed.
const minSwapGain = 1e-12

// swapBest makes the best swap of a single bundle for another one of its model: the one that removes most
// excess beyond the devices or, without excess, saves most of the price. If none is an improvement, it returns
// false.
func (s *bundleRounder) swapBest() bool {
	excessNow := s.excessCost(s.usedDevices, s.movedDevices)
	bestBundle, gain := -1, minSwapGain
	devices := make([]float64, len(s.usedDevices))

	// Try each bundle in place of the chosen one of its model. The gain of the swap is the excess that it removes. If
	// there is no excess, it is the price that it saves, and swaps that bring excess are left out.
	for i := range s.choices {
		b := &s.choices[i]
		current := s.chosen[b.model]
		if i == current {
			continue
		}
		moved := s.useAfterSwap(devices, s.usedDevices, s.movedDevices, current, i) // fills devices
		savedPrice := s.bundlePrices[current] - s.bundlePrices[i]
		// Beside excess, prices count a billionth: they only decide between swaps that remove as much of it. A saving of more
		// than 1e-3 is then above minSwapGain by itself.
		swapGain := excessNow - s.excessCost(devices, moved) + savedPrice*minSwapGain*1e3
		if excessNow == 0 {
			// The gain is below 0 if the swap raises the price, or brings excess worth more than a billionth of what it saves.
			if swapGain < 0 {
				continue
			}
			swapGain = savedPrice
		}
		if swapGain > gain {
			bestBundle, gain = i, swapGain
		}
	}
	if bestBundle < 0 {
		return false
	}
	s.applySwap(bestBundle)
	return true
}

// useAfterSwap computes what is used after one bundle of a model has replaced another: it writes the devices of each pool
// into result and returns how many devices move. devices and moved are these before the swap; result may be devices
// itself. leaving and entering are indexes of bundles.
func (s *bundleRounder) useAfterSwap(result, devices []float64, moved float64, leaving, entering int) float64 {
	oldBundle, newBundle := &s.choices[leaving], &s.choices[entering]
	for k := range result {
		result[k] = devices[k] - oldBundle.devices[k] + newBundle.devices[k]
	}
	return moved - oldBundle.movedDevices + newBundle.movedDevices
}

// applySwap replaces the bundle of a model by bundle i.
func (s *bundleRounder) applySwap(i int) {
	leaving := s.chosen[s.choices[i].model]
	s.movedDevices = s.useAfterSwap(s.usedDevices, s.usedDevices, s.movedDevices, leaving, i)
	s.chosen[s.choices[i].model] = i
}

// newBundleRounder returns a rounder that starts from parts, the fraction of each bundle in the solution of a program: it
// takes, for each model, the bundle with the largest fraction. An excess of devices costs the prices of devices in the
// relaxation, but at least a small one each, so that it always costs. The bundles themselves have the prices that they have
// in the program (bundlePrice). limits has the devices that must stay idle and the limit on moves.
func (x *bundleSearch) newBundleRounder(choices []bundle, parts []float64, limits *bundleLimits) *bundleRounder {
	rounder := &bundleRounder{choices: choices, chosen: make([]int, len(x.problem.Models)), usedDevices: make([]float64, len(x.problem.Pools)), maxMoved: math.Inf(1)}
	totalPrice := lists.Total(x.covers.choice.Relaxation.PoolPrice)
	for k, poolPrice := range x.covers.choice.Relaxation.PoolPrice { // of all devices of pool k together
		rounder.devicePrices = append(rounder.devicePrices, max(poolPrice, totalPrice*1e-3)/float64(max(x.problem.Pools[k].Count, 1)))
		rounder.availableDevices = append(rounder.availableDevices, float64(x.problem.Pools[k].Count)-limits.idleDevices[k])
	}
	if x.incumbent.Replan != nil {
		// Each device moved beyond the limit costs as much as a mean device is worth.
		rounder.maxMoved, rounder.movePenalty = limits.maxMoved, totalPrice/float64(x.problem.TotalDevices())
	}

	// The bundle of each model with the largest part. Each model has one: a program without a bundle of some model has no
	// solution, and then there are no parts to round.
	for d := range rounder.chosen {
		rounder.chosen[d] = -1
	}
	for i := range choices {
		b := &choices[i]
		price, _ := x.bundlePrice(b, limits)
		rounder.bundlePrices = append(rounder.bundlePrices, price)
		if largest := rounder.chosen[b.model]; largest < 0 || parts[i] > parts[largest] {
			rounder.chosen[b.model] = i
		}
	}

	// Add up the devices that these bundles take and move.
	for _, i := range rounder.chosen {
		for k, v := range choices[i].devices {
			rounder.usedDevices[k] += v
		}
		rounder.movedDevices += choices[i].movedDevices
	}
	return rounder
}
