package documents

import (
	"errors"
	"fmt"

	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// DevicePrices returns, by pool, the price of one device for an objective that is minimised: USD per hour, watts, or 1 for
// the number of devices. It returns an error if the cluster has no such price of a pool, or if some model has no floor
// (least rate): without one the best plan serves nothing.
func (r *Resolved) DevicePrices() ([]float64, error) {
	for d := range r.Problem.Models {
		if r.Problem.Models[d].MinRPS <= 0 {
			return nil, r.Input.FieldError("workload", fmt.Sprintf("models[%d].min_rps", d), "no rate to carry",
				"one of every model with --objective "+r.Input.Values.Word("objective"), "--min-load 500 asks for 500 requests/s per weight of every model")
		}
	}
	prices := make([]float64, len(r.Pools))
	for k := range r.Pools {
		price, err := r.Input.DevicePrice(k)
		if err != nil {
			return nil, err
		}
		prices[k] = price
	}
	return prices, nil
}

// floorsFromMinLoad reports whether all floors (least rates of models) come from --min-load alone, and none
// from the workload.
func (r *Resolved) floorsFromMinLoad() bool {
	return !lists.Contains(len(r.models), func(d int) bool {
		return r.models[d].workload.MinRPS > r.Input.Values.Number("min-load")*r.models[d].weight
	})
}

// ExplainError completes a *kind.InfeasibleError of the search: it notes whether all floors (least rates of models) come
// from the option --min-load alone. If they do, it also states the nearest feasible load as a value of that option,
// rounded down. It returns other errors as they are.
func (r *Resolved) ExplainError(err error) error {
	infeasible, ok := errors.AsType[*kind.InfeasibleError](err)
	if !ok {
		return err
	}
	minLoad := r.Input.Values.Number("min-load")
	infeasible.OnlyMinLoad = minLoad > 0 && r.floorsFromMinLoad()
	if infeasible.OnlyMinLoad && infeasible.Nearest.LoadFactor > 0 {
		infeasible.Nearest.MinLoadRPS = kind.RoundDown(minLoad*infeasible.Nearest.LoadFactor, 6)
	}
	return infeasible
}
