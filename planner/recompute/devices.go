package recompute

import (
	"fmt"
	"slices"

	"inferplan/formats"
)

// CheckPools checks that today's cluster has the pools of the plan, as large as then. turns says that the plan's
// models take turns on devices anyway, so that the cluster's sharing does not matter.
func (c *Checker) CheckPools(turns bool) {
	usedKinds := map[string]bool{} // with stages; those that the plan lists as pools are removed below
	for s := range c.Plan.Stages() {
		usedKinds[s.Device] = true
	}
	for i := range c.Plan.Pools {
		c.comparePool(&c.Plan.Pools[i], usedKinds[c.Plan.Pools[i].Device], turns, fmt.Sprintf("pools[%d]", i))
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

// comparePool compares a pool of the plan with that of today's cluster. It is an error if the cluster lacks a pool
// that is used, and otherwise a warning.
func (c *Checker) comparePool(planned *formats.Pool, isUsed, turns bool, path string) {
	current := c.Pool(planned.Device)
	switch {
	case current == nil && isUsed:
		c.AddError("pool", path+".device", planned.Device, "a pool of the cluster", "the cluster has no %s any more, and the plan runs stages there", planned.Device)
	case current == nil:
		c.AddWarning("pool", path+".device", planned.Device, "", "the cluster has no %s any more", planned.Device)
	case current.Count != planned.Count:
		c.AddWarning("pool", path+".count", fmt.Sprint(planned.Count), fmt.Sprint(current.Count), "the number of %s has changed", planned.Device)
	}
	if current != nil && !turns && current.TimeShared() != planned.TimeShared() {
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

// ReplicaMemory returns the memory that one replica of a stage needs: the weights of its blocks, and the working
// memory, which is what was measured beyond the weights of the whole model. It is 0 if the profile does not have
// the blocks.
func (c *Checker) ReplicaMemory(m *formats.Deployed, pl *formats.Pipeline, s *formats.Stage) MemoryNeed {
	pm := c.ProfileModel(m.Model)
	if pm == nil || len(pm.Blocks) < s.Blocks[1] {
		return MemoryNeed{}
	}
	need := MemoryNeed{Blocks: BlockRange{m.Model, s.Blocks[0], s.Blocks[1]}}
	var modelWeights int64
	for i := range pm.Blocks {
		modelWeights += pm.Blocks[i].WeightBytes
		if i >= s.Blocks[0] && i < s.Blocks[1] {
			need.Weights += pm.Blocks[i].WeightBytes
		}
	}
	if ms := MeasurementFor(pm, s.Device, s.Share, pl.Batch); ms != nil && ms.MemoryBytes > modelWeights {
		need.Other = ms.MemoryBytes - modelWeights
	}
	return need
}
