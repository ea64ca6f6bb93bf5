package recompute

import (
	"inferplan/formats"
	"inferplan/planner/kind"
)

// Cost compares what the devices of the two plans cost per hour, at the prices
// of their own clusters; nothing where there are no prices.
func Cost(t *kind.Today) []kind.Sample {
	old, now := hourly(t.Against, t.Against.Pools), hourly(t.Plan, t.Cluster.Pools)
	if old == 0 && now == 0 {
		return nil
	}
	return []kind.Sample{{Metric: "cost", What: "devices used", Old: old, New: now, Unit: "USD per hour"}}
}

// hourly is the price of the whole devices that a plan touches.
func hourly(p *formats.Plan, pools []formats.Pool) float64 {
	sum := 0.0
	for i := range pools {
		sum += float64(len(p.Touched(&pools[i]))) * pools[i].USDPerHour
	}
	return sum
}
