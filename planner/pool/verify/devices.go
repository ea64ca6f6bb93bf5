package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// deviceUse sums up the replicas that one physical device holds.
type deviceUse struct {
	takenShare    float64 // part of the device that is taken
	memory        int64
	placementPath string // path of a placement there, for messages
	loadedBlocks  map[recompute.BlockRange]bool
}

// replicaMemory is the memory that a replica needs.
type replicaMemory struct {
	recompute.MemoryNeed
	sharesWeights bool // whether a device holds the weights once, whatever stages use them
}

// addReplicas adds the bytes of n replicas of a stage to a device. Replicas that share their weights count the
// weights of the same blocks once.
func (device *deviceUse) addReplicas(n int, memory replicaMemory) {
	device.memory += int64(n) * memory.Other
	switch {
	case !memory.sharesWeights:
		device.memory += int64(n) * memory.Weights
	case !device.loadedBlocks[memory.Blocks]:
		device.memory += memory.Weights
		if device.loadedBlocks == nil {
			device.loadedBlocks = map[recompute.BlockRange]bool{}
		}
		device.loadedBlocks[memory.Blocks] = true
	}
}

// slotKey names the replicas that may share whole devices under the slot rule: a stage position of a model.
type slotKey struct {
	model         *formats.Deployed
	stagePosition int
}

// poolUse sums up the part of a pool that the stages of a plan take.
type poolUse struct {
	isUsed   bool
	byDevice map[int]*deviceUse
	bySlot   map[slotKey]float64
	shareSum float64 // devices taken, as the sum of shares
}

// checkDevices checks every pool that the plan uses: that each device exists and holds no more than its share, its
// memory and, where stages take turns, its time allow, and that the plan takes no more devices than there are.
func (c *planChecker) checkDevices() {
	for k := range c.Cluster.Pools {
		pool := &c.Cluster.Pools[k]
		use := c.poolUseOf(pool)
		if !use.isUsed {
			continue
		}
		if pool.TimeShared() {
			if takenDevices := c.carried.timeShares[pool.Device]; takenDevices > float64(pool.Count)*(1+roundingTolerance) {
				c.AddWarning("devices", "pools", fmt.Sprintf("%.4g %s in time", takenDevices, pool.Device), fmt.Sprintf("at most %d", pool.Count),
					"at the planned rates the stages on %s need more time than there is", pool.Device)
			}
		} else {
			c.checkDeviceCount(pool, &use)
		}
		c.checkEachDevice(pool, use.byDevice)
	}
}

// poolUseOf returns how the plan's stages use the devices of a pool: bytes and share of each device, and the
// devices taken by each stage position of a model.
func (c *planChecker) poolUseOf(pool *formats.Pool) poolUse {
	use := poolUse{byDevice: map[int]*deviceUse{}, bySlot: map[slotKey]float64{}}
	for s := range c.Plan.Stages() {
		if s.Device != pool.Device {
			continue
		}
		use.isUsed = true
		// A CPU worker loads the same blocks once, for all classes and batch sizes.
		sharesWeights := pool.TimeShared() && formats.IsCPU(pool.Device)
		c.addPlacement(pool, s.Stage, s.Path(), use.byDevice, replicaMemory{c.ReplicaMemory(s.Deployed, s.Pipeline, s.Stage), sharesWeights})
		part := float64(s.Replicas) / float64(s.Share)
		use.bySlot[slotKey{s.Deployed, s.Position}] += part
		use.shareSum += part
	}
	return use
}

// checkDeviceCount checks that the plan takes no more devices of a pool than there are. By the options, shares of
// a device add up to whole devices within each stage position of a model only, or over all of them.
func (c *planChecker) checkDeviceCount(pool *formats.Pool, use *poolUse) {
	rule, takenDevices := "the sum of shares", use.shareSum
	if c.Plan.Options.Word("gpu-rounding") != "fractional" {
		rule, takenDevices = "whole devices per model and stage position", 0
		for _, part := range use.bySlot {
			takenDevices += math.Ceil(part - roundingTolerance)
		}
	}
	if takenDevices > float64(pool.Count)+roundingTolerance {
		c.AddError("devices", "pools", fmt.Sprintf("%.6g %s", takenDevices, pool.Device), fmt.Sprintf("at most %d", pool.Count),
			"the plan takes more %s than there are, by %s", pool.Device, rule)
	}
}

// checkEachDevice checks the share and the memory of each physical device, in order.
func (c *planChecker) checkEachDevice(pool *formats.Pool, byDevice map[int]*deviceUse) {
	for d := range pool.Count {
		device := byDevice[d]
		if device == nil {
			continue
		}
		if !pool.TimeShared() && device.takenShare > 1+roundingTolerance {
			c.AddError("placement", device.placementPath, fmt.Sprintf("%.4g of device %d", device.takenShare, d), "at most 1", "%s number %d holds more than a whole device", pool.Device, d)
		}
		if pool.Memory > 0 && device.memory > int64(pool.Memory) {
			c.AddError("memory", device.placementPath, fmt.Sprintf("%d bytes on device %d", device.memory, d), fmt.Sprintf("at most %d", int64(pool.Memory)),
				"what is placed on %s number %d does not fit its memory", pool.Device, d)
		}
	}
}

// addPlacement adds a stage's replicas to the devices that its placement names. A placement is a run of devices
// from FirstDevice on, with PerDevice replicas on each. It records an error for a run that cannot be.
func (c *planChecker) addPlacement(pool *formats.Pool, s *formats.Stage, path string, byDevice map[int]*deviceUse, memory replicaMemory) {
	placedReplicas := 0
	for i, p := range s.Placement {
		placementPath := fmt.Sprintf("%s.placement[%d]", path, i)

		// Refuse a run that is empty or beyond the pool's devices.
		if p.FirstDevice < 0 || p.PerDevice < 1 || p.Replicas < 1 || p.Replicas > s.Replicas {
			c.AddError("placement", placementPath, fmt.Sprintf("first %d, per_device %d, replicas %d", p.FirstDevice, p.PerDevice, p.Replicas), "replicas on devices", "a placement of nothing")
			continue
		}
		placedReplicas += p.Replicas
		lastDevice := p.FirstDevice + (p.Replicas-1)/p.PerDevice
		if lastDevice >= pool.Count {
			c.AddError("placement", placementPath, fmt.Sprintf("device %d", lastDevice), fmt.Sprintf("0 to %d", pool.Count-1), "%s number %d is not there", pool.Device, lastDevice)
			continue
		}

		// Add the replicas to each device of the run.
		for d := p.FirstDevice; d <= lastDevice; d++ {
			n := min(p.PerDevice, p.Replicas-(d-p.FirstDevice)*p.PerDevice)
			if byDevice[d] == nil {
				byDevice[d] = &deviceUse{}
			}
			byDevice[d].takenShare += float64(n) / float64(s.Share)
			byDevice[d].addReplicas(n, memory)
			byDevice[d].placementPath = placementPath
		}
	}
	if placedReplicas != s.Replicas {
		c.AddError("placement", path+".placement", fmt.Sprintf("%d replicas", placedReplicas), fmt.Sprint(s.Replicas), "the placement does not hold the stage's replicas")
	}
}
