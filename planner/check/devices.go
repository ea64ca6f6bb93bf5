package check

import (
	"fmt"
	"math"

	"inferplan/formats"
)

// pools checks that the pools that the plan uses are there.
func (c *checker) pools() {
	used := map[string]bool{}
	for i := range c.plan.Models {
		for _, pl := range c.plan.Models[i].Pipelines {
			for _, s := range pl.Stages {
				used[s.Device] = true
			}
		}
	}
	for i := range c.plan.Pools {
		old := &c.plan.Pools[i]
		path := fmt.Sprintf("pools[%d]", i)
		now := c.pool(old.Device)
		switch {
		case now == nil && used[old.Device]:
			c.fail("pool", path+".device", old.Device, "a pool of the cluster", "the cluster has no %s any more, and the plan runs stages there", old.Device)
		case now == nil:
			c.warn("pool", path+".device", old.Device, "", "the cluster has no %s any more", old.Device)
		case now.Count != old.Count:
			c.warn("pool", path+".count", fmt.Sprint(old.Count), fmt.Sprint(now.Count), "the number of %s has changed", old.Device)
		}
		// The models of a cascade take turns whatever the cluster says.
		if now != nil && c.plan.Gear == nil && now.TimeShared() != old.TimeShared() {
			c.fail("sharing", path+".sharing", old.Sharing, now.Sharing, "stages on %s are no longer shared as planned", old.Device)
		}
		delete(used, old.Device)
	}
	for i := range c.cluster.Pools {
		d := c.cluster.Pools[i].Device
		found := false
		for j := range c.plan.Pools {
			found = found || c.plan.Pools[j].Device == d
		}
		if !found {
			c.warn("pool", "pools", "", d, "the cluster now has %s, which the plan does not know", d)
		}
	}
	for i := range c.plan.Models {
		for pi, pl := range c.plan.Models[i].Pipelines {
			for si, s := range pl.Stages {
				if used[s.Device] {
					c.fail("pool", fmt.Sprintf("models[%d].pipelines[%d].stages[%d].device", i, pi, si), s.Device, "one of the plan's pools", "a stage runs on a pool that the plan does not list")
				}
			}
		}
	}
}

// onDevice is what one physical device holds.
type onDevice struct {
	taken  float64 // of the device
	memory int64
	cause  string // a placement there, for messages
	loaded map[loaded]bool
}

// loaded is what the stages of a device may have in memory together.
type loaded struct {
	model       string
	first, last int
}

// need is the memory that a replica takes.
type need struct {
	blocks        loaded
	weights, rest int64
	once          bool // weights are in a device's memory once, whatever stages use them
}

// hold puts n replicas of a stage into the device's memory.
func (on *onDevice) hold(n int, need need) {
	on.memory += int64(n) * need.rest
	switch {
	case !need.once:
		on.memory += int64(n) * need.weights
	case !on.loaded[need.blocks]:
		on.memory += need.weights
		if on.loaded == nil {
			on.loaded = map[loaded]bool{}
		}
		on.loaded[need.blocks] = true
	}
}

// slot is what may share whole devices under the slot rule.
type slot struct {
	model, position int
}

// devices checks placements: every replica on a device that is there, no device
// more than whole, the counting rule, memory, and time shares.
func (c *checker) devices() {
	for k := range c.cluster.Pools {
		pool := &c.cluster.Pools[k]
		byDevice := map[int]*onDevice{}
		bySlot := map[slot]float64{}
		fraction := 0.0
		uses := false
		for mi := range c.plan.Models {
			m := &c.plan.Models[mi]
			for pi := range m.Pipelines {
				for si := range m.Pipelines[pi].Stages {
					s := &m.Pipelines[pi].Stages[si]
					if s.Device != pool.Device {
						continue
					}
					uses = true
					path := fmt.Sprintf("models[%d].pipelines[%d].stages[%d]", mi, pi, si)
					need := c.memory(m, &m.Pipelines[pi], s)
					// A worker there loads the same blocks once, for whatever class or batch.
					need.once = pool.TimeShared() && formats.IsCPU(pool.Device)
					c.placement(pool, s, path, byDevice, need)
					part := float64(s.Replicas) / float64(s.Share)
					bySlot[slot{mi, si}] += part
					fraction += part
				}
			}
		}
		if !uses {
			continue
		}
		if pool.TimeShared() {
			if taken := c.held.shares[pool.Device]; taken > float64(pool.Count)*(1+rounding) {
				c.warn("devices", "pools", fmt.Sprintf("%.4g %s in time", taken, pool.Device), fmt.Sprintf("at most %d", pool.Count),
					"at the planned rates the stages on %s need more time than there is", pool.Device)
			}
		} else {
			rule, taken := "the sum of shares", fraction
			if c.plan.Options.GPURounding != "fractional" {
				rule, taken = "whole devices per model and stage position", 0
				for _, part := range bySlot {
					taken += math.Ceil(part - rounding)
				}
			}
			if taken > float64(pool.Count)+rounding {
				c.fail("devices", "pools", fmt.Sprintf("%.6g %s", taken, pool.Device), fmt.Sprintf("at most %d", pool.Count),
					"the plan takes more %s than there are, by %s", pool.Device, rule)
			}
		}
		c.oneByOne(pool, byDevice)
	}
}

// oneByOne checks each physical device, in order.
func (c *checker) oneByOne(pool *formats.Pool, byDevice map[int]*onDevice) {
	for d := range pool.Count {
		on := byDevice[d]
		if on == nil {
			continue
		}
		if !pool.TimeShared() && on.taken > 1+rounding {
			c.fail("placement", on.cause, fmt.Sprintf("%.4g of device %d", on.taken, d), "at most 1", "%s number %d holds more than a whole device", pool.Device, d)
		}
		if pool.Memory > 0 && on.memory > int64(pool.Memory) {
			c.fail("memory", on.cause, fmt.Sprintf("%d bytes on device %d", on.memory, d), fmt.Sprintf("at most %d", int64(pool.Memory)),
				"what is placed on %s number %d does not fit its memory", pool.Device, d)
		}
	}
}

// placement puts a stage's replicas on its devices.
func (c *checker) placement(pool *formats.Pool, s *formats.Stage, path string, byDevice map[int]*onDevice, need need) {
	total := 0
	for i, p := range s.Placement {
		where := fmt.Sprintf("%s.placement[%d]", path, i)
		if p.First < 0 || p.PerDevice < 1 || p.Replicas < 1 || p.Replicas > s.Replicas {
			c.fail("placement", where, fmt.Sprintf("first %d, per_device %d, replicas %d", p.First, p.PerDevice, p.Replicas), "replicas on devices", "a placement of nothing")
			continue
		}
		total += p.Replicas
		last := p.First + (p.Replicas-1)/p.PerDevice
		if last >= pool.Count {
			c.fail("placement", where, fmt.Sprintf("device %d", last), fmt.Sprintf("0 to %d", pool.Count-1), "%s number %d is not there", pool.Device, last)
			continue
		}
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
		c.fail("placement", path+".placement", fmt.Sprintf("%d replicas", total), fmt.Sprint(s.Replicas), "the placement does not hold the stage's replicas")
	}
}

// memory is what one replica of a stage needs: its weights, and what the
// measurement shows beyond the whole model's weights.
func (c *checker) memory(m *formats.PlanModel, pl *formats.Pipeline, s *formats.Stage) need {
	pm := c.profileModel(m.Model)
	if pm == nil || len(pm.Blocks) < s.Blocks[1] {
		return need{}
	}
	out := need{blocks: loaded{m.Model, s.Blocks[0], s.Blocks[1]}}
	var whole int64
	for i := range pm.Blocks {
		whole += pm.Blocks[i].WeightBytes
		if i >= s.Blocks[0] && i < s.Blocks[1] {
			out.weights += pm.Blocks[i].WeightBytes
		}
	}
	if ms := measured(pm, s.Device, s.Share, pl.Batch); ms != nil && ms.MemoryBytes > whole {
		out.rest = ms.MemoryBytes - whole
	}
	return out
}
