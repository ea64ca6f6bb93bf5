package verify

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// checkDevices checks the placement: every replica is on a device that exists, no device is used more than
// whole (shares of its time included), and the memory suffices. Models may take turns only where the
// cluster still allows it.
func (c *checker) checkDevices() {
	type onDevice struct {
		usedShare float64
		models    int
		memory    int64
		docPath   string
	}
	devices := map[string]map[int]*onDevice{}
	var kinds []string

	// Sum up what the replicas take of each device.
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		for k := range d.Pipelines {
			l := &d.Pipelines[k]
			s, docPath := &l.Stages[0], fmt.Sprintf("deployment[%d].pipelines[%d].stages[0]", i, k)
			pool := c.Pool(s.Device)
			if pool == nil {
				continue // the check of the pools reports it
			}
			if devices[s.Device] == nil {
				devices[s.Device], kinds = map[int]*onDevice{}, append(kinds, s.Device)
			}
			memory, placedReplicas := c.ReplicaMemory(d, l, s), 0
			for n, p := range s.Placement {
				placedReplicas += p.Replicas
				for r := range p.Replicas {
					docPath, dev := fmt.Sprintf("%s.placement[%d]", docPath, n), p.FirstDevice+r/max(p.PerDevice, 1)
					if dev < 0 || dev >= pool.Count {
						c.AddError("placement", docPath, fmt.Sprintf("device %d of %s", dev, s.Device), fmt.Sprintf("one of %d", pool.Count), "%s is placed on a device that is not there", d.Model)
						break
					}
					usage := devices[s.Device][dev]
					if usage == nil {
						usage = &onDevice{docPath: docPath}
						devices[s.Device][dev] = usage
					}
					usage.usedShare += devicesOf(c.Plan, s) / float64(s.Replicas) / float64(s.Share)
					usage.models++
					usage.memory += memory.Weights + memory.Other
				}
			}
			if placedReplicas != s.Replicas {
				c.AddError("placement", docPath+".placement", fmt.Sprint(placedReplicas), fmt.Sprint(s.Replicas), "not every replica of %s has a device", d.Model)
			}
		}
	}

	// Compare the sums with what a device has.
	for _, device := range kinds {
		pool := c.Pool(device)
		for dev := range pool.Count {
			usage := devices[device][dev]
			switch {
			case usage == nil:
			case usage.models > 1 && !pool.TimeShared() && isTimeShared(c.Plan, device):
				c.AddError("sharing", usage.docPath, fmt.Sprintf("%d models on device %d", usage.models, dev), "one, as the cluster shares no device in time", "models on %s no longer take turns as planned", device)
			case usage.usedShare > 1+relativeTolerance:
				c.AddError("placement", usage.docPath, fmt.Sprintf("%.4g of device %d", usage.usedShare, dev), "at most 1", "a %s has more than a whole device can hold", device)
			case pool.Memory > 0 && usage.memory > int64(pool.Memory):
				c.AddError("memory", usage.docPath, fmt.Sprint(usage.memory), fmt.Sprintf("at most %v", document.Bytes(pool.Memory)), "the models on device %d of %s do not fit in its memory", dev, device)
			}
		}
	}
}

// isTimeShared returns whether models take turns on a kind of devices in the plan.
func isTimeShared(plan *formats.Plan, device string) bool {
	return slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return p.Device == device && p.Sharing == formats.SharingTime })
}
