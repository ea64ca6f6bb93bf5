package problem

import (
	"math"
	"slices"

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

// MarginShareOf returns the part of a model's SLO that is kept back as its margin: its own, or that of all
// models.
func MarginShareOf(p *Problem, model int) float64 {
	if p.Margins == nil {
		return p.MarginShare
	}
	return p.Margins[model]
}

// MaxRate returns the rate in requests/s that a template carries if it has all devices of every pool, in
// fractions of replicas.
func (p *Problem) MaxRate(t *stages.Template) float64 {
	rate := math.Inf(1)
	for k := range p.Pools {
		if c := t.DevicesPerRPS(k); c > 0 {
			rate = min(rate, float64(p.Pools[k].Count)/c)
		}
	}
	return rate
}

// HasTimeShared reports whether the problem has a time-shared pool.
func (p *Problem) HasTimeShared() bool {
	for k := range p.Pools {
		if p.Pools[k].TimeShared {
			return true
		}
	}
	return false
}

// manyModels is the number of models from which on plans are looked for by bundles.
const manyModels = 8

// UsesBundles reports whether the models are so many that plans are looked for by bundles.
func (p *Problem) UsesBundles() bool { return len(p.Models) >= manyModels && !p.HasTimeShared() }

// TotalDevices returns the number of devices of all pools.
func (p *Problem) TotalDevices() (n int) {
	for k := range p.Pools {
		n += p.Pools[k].Count
	}
	return n
}

// WithoutFloors returns the problem without floors: no model needs a least rate.
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

// Bisect halves the interval from lo, where a condition holds, to hi, where it does not, so many times, and returns its ends.
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

// CommonParts returns the least number of parts of a device that both a and b divide: in it, shares of 1/a and of 1/b
// are whole numbers of parts.
func CommonParts(a, b int) int {
	divisor, remainder := a, b
	for remainder != 0 {
		divisor, remainder = remainder, divisor%remainder
	}
	return a / divisor * b
}
