package pool

import (
	"fmt"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// sense returns whether the objective is maximised or minimised.
func (o *choices) sense() milp.Sense {
	if o.Objective == ObjectiveThroughput {
		return milp.Maximize
	}
	return milp.Minimize
}

// devicePrices returns the price of one device of each pool by the objective. An objective that is minimised
// needs a floor under every model's rate: without one the best plan serves nothing.
func (r *resolved) prices() ([]float64, error) {
	for d := range r.problem.Models {
		if r.problem.Models[d].MinRPS <= 0 {
			return nil, r.in.Fail("workload", fmt.Sprintf("models[%d].min_rps", d), "no rate to carry",
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
			return nil, r.in.Fail("cluster", fmt.Sprintf("pools[%d].%s", k, field), "nothing", "what a "+p.Device+" takes, for --objective "+r.opt.Objective, "")
		}
	}
	return out, nil
}

// floorsFromMinLoad reports whether all floors come from --min-load alone.
func (r *resolved) onlyMinLoad() bool {
	for d := range r.models {
		if r.models[d].workload.MinRPS > r.opt.MinLoad*r.models[d].weight {
			return false
		}
	}
	return true
}

// infeasibleError translates the search's explanation to the error of the planner.
func (r *resolved) infeasible(e *Infeasible) *kind.InfeasibleError {
	out := &kind.InfeasibleError{Constraint: e.Constraint, Reason: e.Reason, Conflict: e.Conflict}
	if e.Model >= 0 {
		out.Model = r.problem.Models[e.Model].Name
	}
	out.Nearest = kind.Nearest{SLOUS: float64(e.SLO) / 1000, LoadFactor: e.Load, MemoryBytes: e.Memory}
	// If all floors come from --min-load, so does the nearest feasible one, rounded down.
	out.OnlyMinLoad = r.opt.MinLoad > 0 && r.onlyMinLoad()
	if load := r.opt.MinLoad; out.OnlyMinLoad && e.Load > 0 {
		out.Nearest.MinLoadRPS = kind.RoundedDown(load*e.Load, 6)
	}
	for _, m := range e.Devices {
		out.Nearest.Devices = append(out.Nearest.Devices, kind.MissingCount{Device: r.problem.Pools[m.Pool].Kind, Count: m.Count})
	}
	return out
}
