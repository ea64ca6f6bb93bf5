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
		sum += float64(len(touched(p, &pools[i]))) * pools[i].USDPerHour
	}
	return sum
}

// touched are the devices of a pool that something is placed on.
func touched(p *formats.Plan, pool *formats.Pool) map[int]bool {
	used := map[int]bool{}
	for _, m := range p.Deployment {
		for _, pl := range m.Pipelines {
			for _, s := range pl.Stages {
				if s.Device != pool.Device {
					continue
				}
				for _, at := range s.Placement {
					last := at.First + (at.Replicas-1)/max(at.PerDevice, 1)
					for d := max(at.First, 0); d <= last && d < pool.Count; d++ {
						used[d] = true
					}
				}
			}
		}
	}
	return used
}
