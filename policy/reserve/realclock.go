package reserve

import "maps"

const (
	// Guards for real devices: a real clock wakes late, and real runs jitter. A policy that plans every batch to
	// end exactly at its deadline would miss half of the deadlines. Simulation with exact times needs no guards.
	realGuardUS    = 2000
	realGuardShare = 0.1
)

// WithGuards returns a plan's parameters of the policy with guards (parts of each deadline in reserve) for real devices,
// whose times vary, unless the parameters name a guard themselves. The given map is not changed.
func WithGuards(params map[string]float64) map[string]float64 {
	_, hasTime := params["guard_us"]
	_, hasShare := params["guard_share"]
	if hasTime || hasShare {
		return params
	}
	out := map[string]float64{"guard_us": realGuardUS, "guard_share": realGuardShare}
	maps.Copy(out, params)
	return out
}
