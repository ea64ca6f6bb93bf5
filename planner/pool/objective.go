package pool

import (
	"errors"
	"fmt"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// sense returns whether the objective is maximised (throughput) or minimised (price, power, devices).
func (o *optionValues) sense() milp.Sense {
	if o.Objective == ObjectiveThroughput {
		return milp.Maximize
	}
	return milp.Minimize
}

// devicePrices returns the price of one device of each pool by the objective. An objective that is minimised
// needs a floor under every model's rate: without one the best plan serves nothing.
func (r *resolvedProblem) devicePrices() ([]float64, error) {
	for d := range r.problem.Models {
		if r.problem.Models[d].MinRPS <= 0 {
			return nil, r.input.FieldError("workload", fmt.Sprintf("models[%d].min_rps", d), "no rate to carry",
				"one of every model with --objective "+r.options.Objective, "--min-load 500 asks for 500 requests/s per weight of every model")
		}
	}
	prices := make([]float64, len(r.pools))
	for k := range r.pools {
		p := &r.pools[k]
		field := ""
		switch r.options.Objective {
		case ObjectiveCost:
			prices[k], field = p.USDPerHour, "usd_per_hour"
		case ObjectivePower:
			prices[k], field = p.Watts, "watts"
		default:
			prices[k] = 1
		}
		if !(prices[k] > 0) {
			return nil, r.input.FieldError("cluster", fmt.Sprintf("pools[%d].%s", k, field), "nothing", "what a "+p.Device+" takes, for --objective "+r.options.Objective, "")
		}
	}
	return prices, nil
}

// floorsFromMinLoad reports whether all floors (least rates of models) come from --min-load alone, and none
// from the workload.
func (r *resolvedProblem) floorsFromMinLoad() bool {
	for d := range r.models {
		if r.models[d].workload.MinRPS > r.options.MinLoad*r.models[d].weight {
			return false
		}
	}
	return true
}

// explainError adds to the search's error that there is no plan whether all floors come from --min-load. If they do, so
// does the nearest feasible one, rounded down. Of other errors it returns what it was given.
func (r *resolvedProblem) explainError(err error) error {
	infeasible, ok := errors.AsType[*kind.InfeasibleError](err)
	if !ok {
		return err
	}
	if infeasible.OnlyMinLoad = r.options.MinLoad > 0 && r.floorsFromMinLoad(); infeasible.OnlyMinLoad && infeasible.Nearest.LoadFactor > 0 {
		infeasible.Nearest.MinLoadRPS = kind.RoundDown(r.options.MinLoad*infeasible.Nearest.LoadFactor, 6)
	}
	return infeasible
}
