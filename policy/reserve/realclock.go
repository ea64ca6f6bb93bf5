package reserve

import "maps"

// Guards against a real clock, which wakes late, and real runs, which jitter: a
// policy that books every batch to end exactly at its deadline would miss half
// of them. Simulation of exact times needs none.
const (
	realGuardUS    = 2000
	realGuardShare = 0.1
)

// WithGuards adds the guards for real devices to a plan's parameters, unless
// they name a guard themselves.
func WithGuards(params map[string]float64) map[string]float64 {
	_, time := params["guard_us"]
	_, share := params["guard_share"]
	if time || share {
		return params
	}
	out := map[string]float64{"guard_us": realGuardUS, "guard_share": realGuardShare}
	maps.Copy(out, params)
	return out
}
