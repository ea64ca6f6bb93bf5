package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// deviceUse is what one physical device holds.
type onDevice struct {
	taken  float64 // part of the device that is taken
	memory int64
	cause  string // path of a placement there, for messages
	loaded map[recompute.Loaded]bool
}

// replicaMemory is the memory that a replica needs.
type need struct {
	recompute.Need
	once bool // whether a device holds the weights once, whatever stages use them
}

// addReplicas puts n replicas of a stage into the device's memory.
func (on *onDevice) hold(n int, need need) {
	on.memory += int64(n) * need.Rest
	switch {
	case !need.once:
		on.memory += int64(n) * need.Weights
	case !on.loaded[need.Blocks]:
		on.memory += need.Weights
		if on.loaded == nil {
			on.loaded = map[recompute.Loaded]bool{}
		}
		on.loaded[need.Blocks] = true
	}
}

// slotKey names the replicas that may share whole devices under the slot rule: a stage position of a model.
type slot struct {
	model    *formats.Deployed
	position int
}

// poolUse is what the stages of a plan take of a pool.
type onPool struct {
	uses     bool
	byDevice map[int]*onDevice
	bySlot   map[slot]float64
	fraction float64 // devices taken, as the sum of shares
}

// checkDevices checks every pool: that each replica is on a device that exists, that no device is taken more than
// whole, the number of devices by the rounding rule, memory, and time shares.
func (c *checker) devices() {
	for k := range c.Cluster.Pools {
		pool := &c.Cluster.Pools[k]
		on := c.placed(pool)
		if !on.uses {
			continue
		}
		if pool.TimeShared() {
			if taken := c.held.shares[pool.Device]; taken > float64(pool.Count)*(1+rounding) {
				c.Warn("devices", "pools", fmt.Sprintf("%.4g %s in time", taken, pool.Device), fmt.Sprintf("at most %d", pool.Count),
					"at the planned rates the stages on %s need more time than there is", pool.Device)
			}
		} else {
			c.counted(pool, &on)
		}
		c.oneByOne(pool, on.byDevice)
	}
}

// poolUseOf puts all stages that run on a pool onto its devices.
func (c *checker) placed(pool *formats.Pool) onPool {
	on := onPool{byDevice: map[int]*onDevice{}, bySlot: map[slot]float64{}}
	for s := range c.Plan.Stages() {
		if s.Device != pool.Device {
			continue
		}
		on.uses = true
		// A CPU worker loads the same blocks once, for all classes and batch sizes.
		once := pool.TimeShared() && formats.IsCPU(pool.Device)
		c.placement(pool, s.Stage, s.Path(), on.byDevice, need{c.Memory(s.Deployed, s.Pipeline, s.Stage), once})
		part := float64(s.Replicas) / float64(s.Share)
		on.bySlot[slot{s.Deployed, s.Position}] += part
		on.fraction += part
	}
	return on
}

// checkDeviceCount checks the number of devices by the rounding rule that the plan was made with.
func (c *checker) counted(pool *formats.Pool, on *onPool) {
	rule, taken := "the sum of shares", on.fraction
	if c.Plan.Options.Word("gpu-rounding") != "fractional" {
		rule, taken = "whole devices per model and stage position", 0
		for _, part := range on.bySlot {
			taken += math.Ceil(part - rounding)
		}
	}
	if taken > float64(pool.Count)+rounding {
		c.Fail("devices", "pools", fmt.Sprintf("%.6g %s", taken, pool.Device), fmt.Sprintf("at most %d", pool.Count),
			"the plan takes more %s than there are, by %s", pool.Device, rule)
	}
}

// checkEachDevice checks the share and the memory of each physical device, in order.
func (c *checker) oneByOne(pool *formats.Pool, byDevice map[int]*onDevice) {
	for d := range pool.Count {
		on := byDevice[d]
		if on == nil {
			continue
		}
		if !pool.TimeShared() && on.taken > 1+rounding {
			c.Fail("placement", on.cause, fmt.Sprintf("%.4g of device %d", on.taken, d), "at most 1", "%s number %d holds more than a whole device", pool.Device, d)
		}
		if pool.Memory > 0 && on.memory > int64(pool.Memory) {
			c.Fail("memory", on.cause, fmt.Sprintf("%d bytes on device %d", on.memory, d), fmt.Sprintf("at most %d", int64(pool.Memory)),
				"what is placed on %s number %d does not fit its memory", pool.Device, d)
		}
	}
}

// addPlacement puts a stage's replicas on its devices.
func (c *checker) placement(pool *formats.Pool, s *formats.Stage, path string, byDevice map[int]*onDevice, need need) {
	total := 0
	for i, p := range s.Placement {
		where := fmt.Sprintf("%s.placement[%d]", path, i)

		// Refuse a run that is empty or beyond the pool's devices.
		if p.First < 0 || p.PerDevice < 1 || p.Replicas < 1 || p.Replicas > s.Replicas {
			c.Fail("placement", where, fmt.Sprintf("first %d, per_device %d, replicas %d", p.First, p.PerDevice, p.Replicas), "replicas on devices", "a placement of nothing")
			continue
		}
		total += p.Replicas
		last := p.First + (p.Replicas-1)/p.PerDevice
		if last >= pool.Count {
			c.Fail("placement", where, fmt.Sprintf("device %d", last), fmt.Sprintf("0 to %d", pool.Count-1), "%s number %d is not there", pool.Device, last)
			continue
		}

		// Add the replicas to each device of the run.
		for d := p.First; d <= last; d++ {
			n := min(p.PerDevice, p.Replicas-(d-p.First)*p.PerDevice)
			if byDevice[d] == nil {
				byDevice[d] = &onDevice{}
			}
			byDevice[d].taken += float64(n) / float64(s.Share)
			byDevice[d].hold(n, need)
			byDevice[d].cause = where
		}
	}
	if total != s.Replicas {
		c.Fail("placement", path+".placement", fmt.Sprintf("%d replicas", total), fmt.Sprint(s.Replicas), "the placement does not hold the stage's replicas")
	}
}
