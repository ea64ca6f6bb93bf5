package recompute

import (
	"fmt"
	"slices"

	"inferplan/formats"
)

// CheckPools checks that the cluster has the pools of the plan. turns says that models take turns on
// the devices, whatever the cluster says about sharing.
func (c *Checker) Pools(turns bool) {
	used := map[string]bool{}
	for s := range c.Plan.Stages() {
		used[s.Device] = true
	}
	for i := range c.Plan.Pools {
		c.samePool(&c.Plan.Pools[i], used[c.Plan.Pools[i].Device], turns, fmt.Sprintf("pools[%d]", i))
		delete(used, c.Plan.Pools[i].Device)
	}
	for i := range c.Cluster.Pools {
		d := c.Cluster.Pools[i].Device
		if !slices.ContainsFunc(c.Plan.Pools, func(p formats.Pool) bool { return p.Device == d }) {
			c.Warn("pool", "pools", "", d, "the cluster now has %s, which the plan does not know", d)
		}
	}
	for s := range c.Plan.Stages() {
		if used[s.Device] {
			c.Fail("pool", s.Path()+".device", s.Device, "one of the plan's pools", "a stage runs on a pool that the plan does not list")
		}
	}
}

// comparePool compares a pool of the plan with that of the cluster.
func (c *Checker) samePool(old *formats.Pool, used, turns bool, path string) {
	now := c.Pool(old.Device)
	switch {
	case now == nil && used:
		c.Fail("pool", path+".device", old.Device, "a pool of the cluster", "the cluster has no %s any more, and the plan runs stages there", old.Device)
	case now == nil:
		c.Warn("pool", path+".device", old.Device, "", "the cluster has no %s any more", old.Device)
	case now.Count != old.Count:
		c.Warn("pool", path+".count", fmt.Sprint(old.Count), fmt.Sprint(now.Count), "the number of %s has changed", old.Device)
	}
	if now != nil && !turns && now.TimeShared() != old.TimeShared() {
		c.Fail("sharing", path+".sharing", old.Sharing, now.Sharing, "stages on %s are no longer shared as planned", old.Device)
	}
}

// BlockRange is a range of blocks of a model. Stages on a device with the same range may share its memory.
type Loaded struct {
	Model       string
	First, Last int
}

// MemoryNeed is the memory that a replica needs, in bytes.
type Need struct {
	Blocks        Loaded
	Weights, Rest int64
}

// ReplicaMemory returns the memory that one replica of a stage needs: its weights, and the measured
// memory beyond the weights of the whole model.
func (c *Checker) Memory(m *formats.Deployed, pl *formats.Pipeline, s *formats.Stage) Need {
	pm := c.ProfileModel(m.Model)
	if pm == nil || len(pm.Blocks) < s.Blocks[1] {
		return Need{}
	}
	out := Need{Blocks: Loaded{m.Model, s.Blocks[0], s.Blocks[1]}}
	var whole int64
	for i := range pm.Blocks {
		whole += pm.Blocks[i].WeightBytes
		if i >= s.Blocks[0] && i < s.Blocks[1] {
			out.Weights += pm.Blocks[i].WeightBytes
		}
	}
	if ms := Measured(pm, s.Device, s.Share, pl.Batch); ms != nil && ms.MemoryBytes > whole {
		out.Rest = ms.MemoryBytes - whole
	}
	return out
}
