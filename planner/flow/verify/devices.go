package verify

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// checkDevices checks the placement by today's cluster: every replica is on a device that exists, no device is used more than whole
// (shares of its time included), and its memory suffices. Models may take turns on a device only where the cluster still allows it. What
// does not hold is added to the findings.
func (c *checker) checkDevices() {
	// Sum up what the replicas take of each device. A replica takes 1/s.Share of a device, all of the time or, where models take turns, for
	// a part of it.
	uses := recompute.DeviceUses{}
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if c.Pool(s.Device) == nil {
				continue // the check of the pools reports it
			}
			replicaTime := devicesOf(c.Plan, s) / float64(s.Replicas) // part of the time: 1 unless models take turns
			c.AddReplicas(uses, s, fmt.Sprintf("deployment[%d].pipelines[%d].stages[0]", i, k), replicaTime/float64(s.Share), c.ReplicaMemory(d, &d.Pipelines[k], s))
		}
	}
	c.CheckDevices(uses)

	// Models that take turns.
	for k := range c.Cluster.Pools {
		pool := &c.Cluster.Pools[k]
		if pool.TimeShared() || !isTimeShared(c.Plan, pool.Device) {
			continue
		}
		for d := range pool.Count {
			if use := uses[pool.Device][d]; use != nil && use.Replicas > 1 {
				c.AddError("sharing", use.Path, fmt.Sprintf("%d models on device %d", use.Replicas, d), "one, as the cluster shares no device in time", "models on %s no longer take turns as planned", pool.Device)
			}
		}
	}
}

// isTimeShared returns whether models take turns on a kind of devices in the plan.
func isTimeShared(plan *formats.Plan, device string) bool {
	return slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return p.Device == device && p.Sharing == formats.SharingTime })
}
