package kind

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/solver/milp"
)

// SenseOf returns whether an objective is maximised: a throughput, a goodput or an accuracy. All others are minimised.
func SenseOf(objective string) milp.Sense {
	switch objective {
	case "throughput", "goodput", "accuracy":
		return milp.Maximize
	}
	return milp.Minimize
}

// IsBetter reports whether a is better than b as the value of an objective.
func IsBetter(sense milp.Sense, a, b float64) bool {
	if sense == milp.Maximize {
		return a > b
	}
	return a < b
}

// ValidBound returns the bound of a value. A value that is better than its bound is a bound itself.
func ValidBound(sense milp.Sense, value, bound float64) float64 {
	if IsBetter(sense, value, bound) {
		return value
	}
	return bound
}

// BoundedObjective returns the objective of a plan with its bound and the gap to it. If the bound is NaN, it is not
// known, and the objective has neither.
func BoundedObjective(name string, value, bound float64) formats.Objective {
	o := formats.Objective{Name: name, Value: value}
	if !math.IsNaN(bound) {
		gap := milp.RelativeGap(SenseOf(name), value, bound)
		o.Bound, o.Gap = &bound, &gap
	}
	return o
}

// DevicePrice returns what one device of a pool counts in an objective: USD per hour for the cost, watts for the power,
// and else 1. It also returns the field of the pool that has it, which is empty if none has.
func DevicePrice(objective string, pool *formats.Pool) (price float64, field string) {
	switch objective {
	case "cost":
		return pool.USDPerHour, "usd_per_hour"
	case "power":
		return pool.Watts, "watts"
	}
	return 1, ""
}

// DevicePrice returns what one device of pool k of the cluster counts in the objective that the options ask for. If the
// pool has no such price, it returns an error.
func (p *Problem) DevicePrice(k int) (float64, error) {
	objective, pool := p.Values.Word("objective"), &p.Cluster.Pools[k]
	price, field := DevicePrice(objective, pool)
	if !(price > 0) {
		return 0, p.FieldError("cluster", fmt.Sprintf("pools[%d].%s", k, field), "nothing", "what a "+pool.Device+" takes, for --objective "+objective, "")
	}
	return price, nil
}
