package recompute

import (
	"inferplan/formats"
	"inferplan/planner/kind"
)

// CostFigures returns the price per hour of the devices of the promised plan and of the plan under check, each with the prices of its own
// cluster, as a figure to compare. If there are no prices, it returns nil.
func CostFigures(t *kind.CheckInput) []kind.FigurePair {
	promised, current := hourlyPrice(t.Promised, t.Promised.Pools), hourlyPrice(t.Plan, t.Cluster.Pools)
	if promised == 0 && current == 0 {
		return nil
	}
	return []kind.FigurePair{{Metric: "cost", Subject: "devices used", Old: promised, New: current, Unit: "USD per hour"}}
}

// hourlyPrice returns the price of the devices that a plan uses, in USD per hour, by the prices of the given
// pools. A device that is used in part counts whole.
func hourlyPrice(p *formats.Plan, pools []formats.Pool) float64 {
	sum := 0.0
	for i := range pools {
		sum += float64(len(p.UsedDevices(&pools[i]))) * pools[i].USDPerHour
	}
	return sum
}
