package recompute

import (
	"fmt"
	"slices"

	"inferplan/formats"
)

// Pools checks that the pools that the plan uses are there. turns says that
// models take turns on the devices, whatever the cluster says of sharing.
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

// samePool compares a pool of the plan with that of the cluster.
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

// Loaded is what the stages of a device may have in memory together.
type Loaded struct {
	Model       string
	First, Last int
}

// Need is the memory that a replica takes.
type Need struct {
	Blocks        Loaded
	Weights, Rest int64
}

// Memory is what one replica of a stage needs: its weights, and what the
// measurement shows beyond the whole model's weights.
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
