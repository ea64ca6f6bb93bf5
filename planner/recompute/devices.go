package recompute

import (
	"fmt"
	"math"
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
	SharesWeights  bool // a device holds the weights of equal blocks once, whatever replicas use them
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

// DeviceUse holds what replicas take of one device.
type DeviceUse struct {
	Share        float64 // part of the device: of its space or, where models take turns, of its time
	Memory       int64   // bytes
	Replicas     int
	Path         string // of the first placement there, for findings
	loadedBlocks map[BlockRange]bool
}

// DeviceUses holds what replicas take of devices, by kind and number.
type DeviceUses map[string]map[int]*DeviceUse

// useOf returns what replicas take of a device. If none was counted there yet, it notes path, where the first one stands.
func (u DeviceUses) useOf(kind string, device int, path string) *DeviceUse {
	if u[kind] == nil {
		u[kind] = map[int]*DeviceUse{}
	}
	if u[kind][device] == nil {
		u[kind][device] = &DeviceUse{Path: path, loadedBlocks: map[BlockRange]bool{}}
	}
	return u[kind][device]
}

// AddReplicas adds to uses what the replicas of a stage take of their devices: each a part of the device, share, and memory. It returns the
// device of every replica. If one is not there, or not every replica has a device, it adds an error and returns false. path is the stage's
// place in the plan.
func (c *Checker) AddReplicas(uses DeviceUses, s *formats.Stage, path string, share float64, need MemoryNeed) (devices []int, ok bool) {
	pool, placedReplicas := c.Pool(s.Device), 0
	ok = true
	for i, p := range s.Placement {
		placedReplicas += p.Replicas
		placementPath := fmt.Sprintf("%s.placement[%d]", path, i)
		for k := range p.Replicas {
			device := p.FirstDevice + k/max(p.PerDevice, 1)
			if pool != nil && (device < 0 || device >= pool.Count) {
				c.AddError("placement", placementPath, fmt.Sprintf("device %d", device), fmt.Sprintf("0 to %d", pool.Count-1), "%s number %d is not there", s.Device, device)
				ok = false
				break
			}
			devices = append(devices, device)
			use := uses.useOf(s.Device, device, placementPath)
			use.Share += share
			use.Replicas++
			use.Memory += need.Other
			if !need.SharesWeights || !use.loadedBlocks[need.Blocks] {
				use.Memory += need.Weights
				use.loadedBlocks[need.Blocks] = true
			}
		}
	}
	if placedReplicas != s.Replicas {
		c.AddError("placement", path+".placement", fmt.Sprintf("%d replicas", placedReplicas), fmt.Sprint(s.Replicas), "the placement does not hold the stage's replicas")
		ok = false
	}
	return devices, ok
}

// CheckDevices adds an error for every device of today's cluster of which replicas take more than there is: more than all of it or, if not
// that, more memory.
func (c *Checker) CheckDevices(uses DeviceUses) {
	for k := range c.Cluster.Pools {
		pool := &c.Cluster.Pools[k]
		for d := range pool.Count {
			switch use := uses[pool.Device][d]; {
			case use == nil:
			case use.Share > 1+Rounding:
				c.AddError("placement", use.Path, fmt.Sprintf("%.4g of device %d", use.Share, d), "at most 1", "%s number %d holds more than a whole device", pool.Device, d)
			case pool.Memory > 0 && use.Memory > int64(pool.Memory):
				c.AddError("memory", use.Path, fmt.Sprintf("%d bytes on device %d", use.Memory, d), fmt.Sprintf("at most %d", int64(pool.Memory)),
					"what is placed on %s number %d does not fit its memory", pool.Device, d)
			}
		}
	}
}

// ThroughputFigures returns, for a plan of the most throughput, the promised objective and the best that can be reached today, by the plan
// under check or by the best plan, as a figure to compare. valueToday is the rate that the plan under check reaches. For other plans, and without a
// best plan, it returns nil.
//
// Fluid is the rate that the devices of a plan carry without queueing; simulation showed that the promised plan holds its Value of that. If the best
// plan of today was not simulated, its value is one without queueing: assume that it holds the same part of it. To compare the two, the
// value of the plan under check is divided by that part, and the larger one multiplied by it.
func ThroughputFigures(t *kind.CheckInput, valueToday float64) []kind.FigurePair {
	promised, heldPart := &t.Promised.Objective, 1.0
	isUntested := t.BestPlan != nil && t.BestPlan.Objective.Fluid == nil
	if isUntested && promised.Fluid != nil && *promised.Fluid > 0 {
		heldPart = promised.Value / *promised.Fluid
	}
	bestToday, ok := t.Reachable(valueToday / heldPart)
	if !ok || promised.Name != "throughput" || math.IsInf(bestToday, 1) {
		return nil
	}
	return []kind.FigurePair{{Metric: "rps", Subject: "objective (today: of the best plan)", Old: promised.Value, New: bestToday * heldPart, Unit: "rps per weight"}}
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
