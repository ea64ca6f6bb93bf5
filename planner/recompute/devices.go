package recompute

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// CheckPools checks that today's cluster has the pools of the plan, as large as then, and adds differences to the findings. It also
// reports stages on a pool that the plan does not list. With ignoreSharing it does not compare how the pools are shared: that is for kinds
// of plans that check it themselves, or whose models take turns on any pool.
func (c *Checker) CheckPools(ignoreSharing bool) {
	usedKinds := map[string]bool{} // with stages; those that the plan lists as pools are removed below
	for s := range c.Plan.Stages() {
		usedKinds[s.Device] = true
	}
	for i := range c.Plan.Pools {
		c.comparePool(&c.Plan.Pools[i], usedKinds[c.Plan.Pools[i].Device], ignoreSharing, fmt.Sprintf("pools[%d]", i))
		delete(usedKinds, c.Plan.Pools[i].Device)
	}
	for i := range c.Cluster.Pools {
		d := c.Cluster.Pools[i].Device
		if !slices.ContainsFunc(c.Plan.Pools, func(p formats.Pool) bool { return p.Device == d }) {
			c.AddWarning("pool", "pools", "", d, "the cluster now has %s, which the plan does not know", d)
		}
	}
	for s := range c.Plan.Stages() {
		if usedKinds[s.Device] {
			c.AddError("pool", s.Path()+".device", s.Device, "one of the plan's pools", "a stage runs on a pool that the plan does not list")
		}
	}
}

// comparePool compares a pool of the plan with that of today's cluster, and adds a finding if it is gone, has another number of devices, or
// is shared in another way. A pool that is gone is an error if stages of the plan run there (isUsed), and otherwise a warning. With
// ignoreSharing the way of sharing is not compared. path is the pool's place in the plan.
func (c *Checker) comparePool(planned *formats.Pool, isUsed, ignoreSharing bool, path string) {
	current := c.Pool(planned.Device)
	switch {
	case current == nil && isUsed:
		c.AddError("pool", path+".device", planned.Device, "a pool of the cluster", "the cluster has no %s any more, and the plan runs stages there", planned.Device)
	case current == nil:
		c.AddWarning("pool", path+".device", planned.Device, "", "the cluster has no %s any more", planned.Device)
	case current.Count != planned.Count:
		c.AddWarning("pool", path+".count", fmt.Sprint(planned.Count), fmt.Sprint(current.Count), "the number of %s has changed", planned.Device)
	}
	if current != nil && !ignoreSharing && current.TimeShared() != planned.TimeShared() {
		c.AddError("sharing", path+".sharing", planned.Sharing, current.Sharing, "stages on %s are no longer shared as planned", planned.Device)
	}
}

// BlockRange is a range of blocks of a model. Stages on a device with the same range may share its memory.
type BlockRange struct {
	Model      string
	First, End int
}

// MemoryNeed is the memory that a replica needs, in bytes.
type MemoryNeed struct {
	Blocks         BlockRange
	Weights, Other int64
}

// ReplicaMemory returns the memory that one replica of a stage of a deployed model needs, in bytes, by today's profile: the weights of
// its blocks, and the working memory, which is the part that was measured beyond the weights of the whole model. If the profile does not
// have the blocks, it is 0.
func (c *Checker) ReplicaMemory(deployed *formats.Deployed, pl *formats.Pipeline, s *formats.Stage) MemoryNeed {
	profiled := c.ProfileModel(deployed.Model)
	if profiled == nil || len(profiled.Blocks) < s.Blocks[1] {
		return MemoryNeed{}
	}
	need := MemoryNeed{Blocks: BlockRange{deployed.Model, s.Blocks[0], s.Blocks[1]}}
	var modelWeights int64
	for i := range profiled.Blocks {
		modelWeights += profiled.Blocks[i].WeightBytes
		if i >= s.Blocks[0] && i < s.Blocks[1] {
			need.Weights += profiled.Blocks[i].WeightBytes
		}
	}
	if measurement := MeasurementFor(profiled, s.Device, s.Share, pl.Batch); measurement != nil && measurement.MemoryBytes > modelWeights {
		need.Other = measurement.MemoryBytes - modelWeights
	}
	return need
}

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
