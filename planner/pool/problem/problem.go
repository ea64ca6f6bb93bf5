package problem

import (
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/stages"
)

// Rounding is the rule by which shares of devices are rounded up to whole devices.
type Rounding int8

const (
	// Slot rounds up to whole devices per model, stage position and device kind. Only pipelines of one model
	// share a device, and only at the same position.
	Slot Rounding = iota
	// Fractional lets any stages share a device. Only the sum of shares is limited.
	Fractional
)

// Problem says what to plan, as numbers.
type Problem struct {
	stages.Problem
	Rounding    Rounding
	Fluid       bool    // if set, waits on time-shared devices are ignored
	MarginShare float64 // part of each SLO that is kept back; every Model.Margin is kind.Margin(SLO, MarginShare)
	// Margins holds the share of each model. If it is nil, every model has MarginShare.
	Margins []float64
}

// MarginShareOf returns the part of a model's SLO (its limit on latency) that a plan keeps back for waits that the
// times of batches do not show: the model's own part, or the one of all models.
func MarginShareOf(p *Problem, model int) float64 {
	if p.Margins == nil {
		return p.MarginShare
	}
	return p.Margins[model]
}

// MaxRate returns the rate in requests/s that a template (a pipeline without replica counts) carries if it has all
// devices of every pool to itself and replicas may be fractions. The pool that runs out first limits it. It bounds
// rates in programs. If the template takes no devices, the rate is +Inf.
func (p *Problem) MaxRate(t *stages.Template) float64 {
	rate := math.Inf(1)
	for k := range p.Pools {
		if devicesPerRPS := t.DevicesPerRPS(k); devicesPerRPS > 0 {
			rate = min(rate, float64(p.Pools[k].Count)/devicesPerRPS)
		}
	}
	return rate
}

// HasTimeShared reports whether some pool is time-shared: all stages placed there are loaded on each of its devices
// and take turns, so batches wait for others and rates take parts of the devices' time.
func (p *Problem) HasTimeShared() bool {
	return lists.Contains(len(p.Pools), func(k int) bool { return p.Pools[k].TimeShared })
}

// manyModels is the number of models from which on plans are looked for by bundles.
const manyModels = 8

// UsesBundles reports whether the models are so many that plans are looked for by bundles.
func (p *Problem) UsesBundles() bool { return len(p.Models) >= manyModels && !p.HasTimeShared() }

// TotalDevices returns the number of devices of all pools together.
func (p *Problem) TotalDevices() (n int) {
	return lists.Sum(len(p.Pools), func(k int) int { return p.Pools[k].Count })
}

// WithoutFloors returns a copy of the problem without floors: no model needs a least rate. The problem itself is
// not changed. Searches that scale the floors, or need the rates that come about without them, plan this copy.
func (p *Problem) WithoutFloors() *Problem {
	relaxed := *p
	relaxed.Models = append([]stages.Model(nil), p.Models...)
	for d := range relaxed.Models {
		relaxed.Models[d].MinRPS = 0
	}
	return &relaxed
}

// FloorTolerance is the part by which a plan may miss a floor under a rate. Every search uses this one value, so
// that all of them accept the same plans.
const FloorTolerance = 1e-6

// MeetsFloor reports whether a rate reaches a floor, within the tolerance.
func MeetsFloor(rps, floor float64) bool { return rps >= floor*(1-FloorTolerance) }

// HasFloors reports whether some model has a floor.
func (p *Problem) HasFloors() bool {
	return slices.ContainsFunc(p.Models, func(m stages.Model) bool { return m.MinRPS > 0 })
}

// ValueTolerance is the relative difference up to which values count as equal: adding up rates in another order
// changes them by so much.
const ValueTolerance = 1e-9

// Bisect looks for the point between lo and hi up to which a condition holds. It halves the interval so many times,
// calling holds once for each, and returns its ends: holds was true at the first end and false at the second. It takes
// that for granted of lo and hi themselves, which it returns if no midpoint moved them.
func Bisect(lo, hi float64, halvings int, holds func(float64) bool) (float64, float64) {
	for range halvings {
		if mid := (lo + hi) / 2; holds(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, hi
}

// CommonParts returns into how many equal parts a device must be divided so that shares of 1/a and of 1/b are both
// whole numbers of parts: the least common multiple of a and b, which are at least 1. Packing counts free space so.
func CommonParts(a, b int) int {
	// Euclid: the divisor ends as the greatest common one.
	divisor, remainder := a, b
	for remainder != 0 {
		divisor, remainder = remainder, divisor%remainder
	}
	return a / divisor * b
}
