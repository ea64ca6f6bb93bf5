package recompute

import (
	"inferplan/formats"
	"inferplan/planner/kind"
)

// CostFigures compares the prices per hour of the devices of both plans, each with the prices of its
// own cluster. If there are no prices, it returns nothing.
func Cost(t *kind.Today) []kind.Sample {
	old, now := hourly(t.Against, t.Against.Pools), hourly(t.Plan, t.Cluster.Pools)
	if old == 0 && now == 0 {
		return nil
	}
	return []kind.Sample{{Metric: "cost", What: "devices used", Old: old, New: now, Unit: "USD per hour"}}
}

// hourlyPrice returns the price of the whole devices that a plan uses.
func hourly(p *formats.Plan, pools []formats.Pool) float64 {
	sum := 0.0
	for i := range pools {
		sum += float64(len(p.Touched(&pools[i]))) * pools[i].USDPerHour
	}
	return sum
}
