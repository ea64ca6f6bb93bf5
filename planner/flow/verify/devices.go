package verify

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// deviceUsage sums up what the replicas of a plan take of a device.
type deviceUsage struct {
	share   float64 // part of the device: of its space or, where models take turns, of its time
	models  int
	memory  int64
	docPath string // where the first of them stands
}

// usageByDevice has the usage of the devices of some kinds.
type usageByDevice struct {
	kinds   []string
	devices map[string]map[int]*deviceUsage // by kind and number
}

// usageOf returns what the replicas counted so far take of a device, which is given by its kind and its number. If there is no entry yet,
// it adds one with docPath, the place in the plan of the device's first replica, to which findings about the device refer.
func (u *usageByDevice) usageOf(device string, number int, docPath string) *deviceUsage {
	usage := u.devices[device][number]
	if usage == nil {
		usage = &deviceUsage{docPath: docPath}
		u.devices[device][number] = usage
	}
	return usage
}

// checkDevices checks the placement by today's cluster: every replica is on a device that exists, no device is used more than whole
// (shares of its time included), and its memory suffices. Models may take turns on a device only where the cluster still allows it. What
// does not hold is added to the findings.
func (c *checker) checkDevices() {
	// Sum up what the replicas take of each device.
	usages := &usageByDevice{devices: map[string]map[int]*deviceUsage{}}
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if c.Pool(s.Device) == nil {
				continue // the check of the pools reports it
			}
			if usages.devices[s.Device] == nil {
				usages.devices[s.Device], usages.kinds = map[int]*deviceUsage{}, append(usages.kinds, s.Device)
			}
			c.addUsage(usages, d, &d.Pipelines[k], fmt.Sprintf("deployment[%d].pipelines[%d].stages[0]", i, k))
		}
	}

	// Compare the sums with what a device has.
	for _, device := range usages.kinds {
		pool := c.Pool(device)
		for dev := range pool.Count {
			usage := usages.devices[device][dev]
			switch {
			case usage == nil:
			case usage.models > 1 && !pool.TimeShared() && isTimeShared(c.Plan, device):
				c.AddError("sharing", usage.docPath, fmt.Sprintf("%d models on device %d", usage.models, dev), "one, as the cluster shares no device in time", "models on %s no longer take turns as planned", device)
			case usage.share > 1+relativeTolerance:
				c.AddError("placement", usage.docPath, fmt.Sprintf("%.4g of device %d", usage.share, dev), "at most 1", "a %s has more than a whole device can hold", device)
			case pool.Memory > 0 && usage.memory > int64(pool.Memory):
				c.AddError("memory", usage.docPath, fmt.Sprint(usage.memory), fmt.Sprintf("at most %v", document.Bytes(pool.Memory)), "the models on device %d of %s do not fit in its memory", dev, device)
			}
		}
	}
}

// addUsage adds to usages what the replicas of a pipeline's only stage take of their devices (share and memory), and adds findings for
// devices that do not exist and replicas without a device. docPath is the stage's place in the plan.
//
// A replica takes 1/s.Share of a device, all of the time or, where models take turns, for a part of it.
func (c *checker) addUsage(usages *usageByDevice, d *formats.Deployed, l *formats.Pipeline, docPath string) {
	s := &l.Stages[0]
	pool, memory, placedReplicas := c.Pool(s.Device), c.ReplicaMemory(d, l, s), 0
	replicaTime := devicesOf(c.Plan, s) / float64(s.Replicas) // part of the time: 1 unless models take turns
	for n, p := range s.Placement {
		placedReplicas += p.Replicas
		placementPath := fmt.Sprintf("%s.placement[%d]", docPath, n)
		for r := range p.Replicas {
			dev := p.FirstDevice + r/max(p.PerDevice, 1) // a PerDevice of 0 counts as 1
			if dev < 0 || dev >= pool.Count {
				c.AddError("placement", placementPath, fmt.Sprintf("device %d of %s", dev, s.Device), fmt.Sprintf("one of %d", pool.Count), "%s is placed on a device that is not there", d.Model)
				break
			}
			usage := usages.usageOf(s.Device, dev, placementPath)
			usage.share += replicaTime / float64(s.Share)
			usage.models++
			usage.memory += memory.Weights + memory.Other
		}
	}
	if placedReplicas != s.Replicas {
		c.AddError("placement", docPath+".placement", fmt.Sprint(placedReplicas), fmt.Sprint(s.Replicas), "not every replica of %s has a device", d.Model)
	}
}

// isTimeShared returns whether models take turns on a kind of devices in the plan.
func isTimeShared(plan *formats.Plan, device string) bool {
	return slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return p.Device == device && p.Sharing == formats.SharingTime })
}
