package planner

import (
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// sense tells whether the objective is to grow or to shrink.
func (o *Options) sense() milp.Sense {
	if o.Objective == ObjectiveThroughput {
		return milp.Maximize
	}
	return milp.Minimize
}

// better tells whether a is a better value of the objective than b.
func (o *Options) better(a, b float64) bool {
	if o.sense() == milp.Maximize {
		return a > b
	}
	return a < b
}

// prices are what one device of each pool costs by the objective. What is to
// shrink needs a floor under every model's rate, or the best plan is none.
func (r *resolved) prices() ([]float64, error) {
	for d := range r.problem.Models {
		if r.problem.Models[d].MinRPS <= 0 {
			return nil, r.fail("workload", fmt.Sprintf("models[%d].min_rps", d), "no rate to carry",
				"one of every model with --objective "+r.opt.Objective, "--min-load 500 asks for 500 requests/s per weight of every model")
		}
	}
	out := make([]float64, len(r.pools))
	for k := range r.pools {
		p := &r.pools[k]
		field := ""
		switch r.opt.Objective {
		case ObjectiveCost:
			out[k], field = p.USDPerHour, "usd_per_hour"
		case ObjectivePower:
			out[k], field = p.Watts, "watts"
		default:
			out[k] = 1
		}
		if !(out[k] > 0) {
			return nil, r.fail("cluster", fmt.Sprintf("pools[%d].%s", k, field), "nothing", "what a "+p.Device+" takes, for --objective "+r.opt.Objective, "")
		}
	}
	return out, nil
}

// onlyMinLoad tells whether --min-load alone sets the floors.
func (r *resolved) onlyMinLoad() bool {
	for d := range r.models {
		if r.models[d].workload.MinRPS > r.opt.MinLoad*r.problem.Models[d].Weight {
			return false
		}
	}
	return true
}

// roundDown keeps six digits of a positive number.
func roundDown(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-5)
	return math.Floor(v/unit) * unit
}
