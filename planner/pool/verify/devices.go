package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// slotKey names the replicas that may share whole devices under the slot rule: a stage position of a model.
type slotKey struct {
	model         *formats.Deployed
	stagePosition int
}

// checkDevices checks every pool that the plan uses: that each device exists and holds no more than its share, its
// memory and, where stages take turns, its time allow, and that the plan takes no more devices than there are.
func (c *planChecker) checkDevices() {
	uses := recompute.DeviceUses{}
	for k := range c.Cluster.Pools {
		// Add up the devices that the stages take: in shares, and by slot.
		pool := &c.Cluster.Pools[k]
		bySlot, shareSum := map[slotKey]float64{}, 0.0
		for s := range c.Plan.Stages() {
			if s.Device != pool.Device {
				continue
			}
			need, share := c.ReplicaMemory(s.Deployed, s.Pipeline, s.Stage), 1/float64(s.Share)
			bySlot[slotKey{s.Deployed, s.Position}] += float64(s.Replicas) * share
			shareSum += float64(s.Replicas) * share
			if pool.TimeShared() { // stages take turns: their time is checked below
				share, need.SharesWeights = 0, formats.IsCPU(pool.Device) // a CPU worker loads the same blocks once, for all classes and batch sizes
			}
			c.AddReplicas(uses, s.Stage, s.Path(), share, need)
		}
		if !pool.TimeShared() {
			c.checkDeviceCount(pool, bySlot, shareSum)
		} else if takenDevices := c.carried.timeShares[pool.Device]; takenDevices > float64(pool.Count)*(1+roundingTolerance) {
			c.AddWarning("devices", "pools", fmt.Sprintf("%.4g %s in time", takenDevices, pool.Device), fmt.Sprintf("at most %d", pool.Count),
				"at the planned rates the stages on %s need more time than there is", pool.Device)
		}
	}
	c.CheckDevices(uses)
}

// checkDeviceCount checks that the plan takes no more devices of a pool than there are. By the options, shares of
// a device add up to whole devices within each stage position of a model only, or over all of them. bySlot has the
// devices that stages take by slot, and shareSum those of all.
func (c *planChecker) checkDeviceCount(pool *formats.Pool, bySlot map[slotKey]float64, shareSum float64) {
	rule, takenDevices := "the sum of shares", shareSum
	if c.Plan.Options.Word("gpu-rounding") != "fractional" {
		rule, takenDevices = "whole devices per model and stage position", 0
		for _, part := range bySlot {
			takenDevices += math.Ceil(part - roundingTolerance)
		}
	}
	if takenDevices > float64(pool.Count)+roundingTolerance {
		c.AddError("devices", "pools", fmt.Sprintf("%.6g %s", takenDevices, pool.Device), fmt.Sprintf("at most %d", pool.Count),
			"the plan takes more %s than there are, by %s", pool.Device, rule)
	}
}
