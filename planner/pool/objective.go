package pool

import (
	"fmt"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// sense tells whether the objective is to grow or to shrink.
func (o *choices) sense() milp.Sense {
	if o.Objective == ObjectiveThroughput {
		return milp.Maximize
	}
	return milp.Minimize
}

// prices are what one device of each pool costs by the objective. What is to
// shrink needs a floor under every model's rate, or the best plan is none.
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

// onlyMinLoad tells whether --min-load alone sets the floors.
func (r *resolved) onlyMinLoad() bool {
	for d := range r.models {
		if r.models[d].workload.MinRPS > r.opt.MinLoad*r.models[d].weight {
			return false
		}
	}
	return true
}

// infeasible translates the method's explanation.
func (r *resolved) infeasible(e *Infeasible) *kind.InfeasibleError {
	out := &kind.InfeasibleError{Constraint: e.Constraint, Reason: e.Reason, Conflict: e.Conflict}
	if e.Model >= 0 {
		out.Model = r.problem.Models[e.Model].Name
	}
	out.Nearest = kind.Nearest{SLOUS: float64(e.SLO) / 1000, LoadFactor: e.Load, MemoryBytes: e.Memory}
	// Where all floors come from --min-load, so does the nearest one: rounded down.
	out.OnlyMinLoad = r.opt.MinLoad > 0 && r.onlyMinLoad()
	if load := r.opt.MinLoad; out.OnlyMinLoad && e.Load > 0 {
		out.Nearest.MinLoadRPS = kind.RoundedDown(load*e.Load, 6)
	}
	for _, m := range e.Devices {
		out.Nearest.Devices = append(out.Nearest.Devices, kind.MissingCount{Device: r.problem.Pools[m.Pool].Kind, Count: m.Count})
	}
	return out
}
