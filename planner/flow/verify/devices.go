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
func (c *checker) devices() {
	type onDevice struct {
		taken  float64
		models int
		memory int64
		at     string
	}
	held := map[string]map[int]*onDevice{}
	var order []string

	// Sum up what the replicas take of each device.
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		for k := range d.Pipelines {
			l := &d.Pipelines[k]
			s, at := &l.Stages[0], fmt.Sprintf("deployment[%d].pipelines[%d].stages[0]", i, k)
			pool := c.Pool(s.Device)
			if pool == nil {
				continue // the check of the pools reports it
			}
			if held[s.Device] == nil {
				held[s.Device], order = map[int]*onDevice{}, append(order, s.Device)
			}
			need, placed := c.Memory(d, l, s), 0
			for n, p := range s.Placement {
				placed += p.Replicas
				for r := range p.Replicas {
					at, dev := fmt.Sprintf("%s.placement[%d]", at, n), p.First+r/max(p.PerDevice, 1)
					if dev < 0 || dev >= pool.Count {
						c.Fail("placement", at, fmt.Sprintf("device %d of %s", dev, s.Device), fmt.Sprintf("one of %d", pool.Count), "%s is placed on a device that is not there", d.Model)
						break
					}
					on := held[s.Device][dev]
					if on == nil {
						on = &onDevice{at: at}
						held[s.Device][dev] = on
					}
					on.taken += devicesOf(c.Plan, s) / float64(s.Replicas) / float64(s.Share)
					on.models++
					on.memory += need.Weights + need.Rest
				}
			}
			if placed != s.Replicas {
				c.Fail("placement", at+".placement", fmt.Sprint(placed), fmt.Sprint(s.Replicas), "not every replica of %s has a device", d.Model)
			}
		}
	}

	// Compare the sums with what a device has.
	for _, device := range order {
		pool := c.Pool(device)
		for dev := range pool.Count {
			on := held[device][dev]
			switch {
			case on == nil:
			case on.models > 1 && !pool.TimeShared() && inTurns(c.Plan, device):
				c.Fail("sharing", on.at, fmt.Sprintf("%d models on device %d", on.models, dev), "one, as the cluster shares no device in time", "models on %s no longer take turns as planned", device)
			case on.taken > 1+rounding:
				c.Fail("placement", on.at, fmt.Sprintf("%.4g of device %d", on.taken, dev), "at most 1", "a %s has more than a whole device can hold", device)
			case pool.Memory > 0 && on.memory > int64(pool.Memory):
				c.Fail("memory", on.at, fmt.Sprint(on.memory), fmt.Sprintf("at most %v", document.Bytes(pool.Memory)), "the models on device %d of %s do not fit in its memory", dev, device)
			}
		}
	}
}

// isTimeShared returns whether models take turns on a kind of devices in the plan.
func inTurns(plan *formats.Plan, device string) bool {
	return slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return p.Device == device && p.Sharing == formats.SharingTime })
}
