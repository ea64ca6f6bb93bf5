package formats

import (
	"fmt"
	"slices"

	"inferplan/formats/document"
)

// DevicePart is something that runs on devices of a pool: a stage of a model, an instance, a model that is loaded.
type DevicePart struct {
	Device string  // the kind of device
	First  int     // index of the first device in the pool
	Count  int     // consecutive devices, each of which has this part
	Label  string  // what it is, such as "resnet50 [0,5)"
	Share  float64 // the share of each device that it occupies: of space or, on a pool that is shared in time, of time; 0 if not known
	Busy   float64 // the share of the planned rate in what it could carry; 0 if not known
}

// DeviceGroup is consecutive devices of a pool on which the same parts run.
type DeviceGroup struct {
	Device      string
	First       int
	Count       int
	SharesTime  bool // Share of the parts is a share of time, else of the device
	Parts       []DevicePart
	UnusedShare float64 // what the parts leave of each device
}

// devicePartsSection is the section of a plan whose deployment has parts besides the stages of pipelines.
type devicePartsSection interface {
	deviceParts(p *Plan) []DevicePart
}

// DeviceParts returns what runs on the devices of a plan: the stages of its pipelines, and what only plans of its kind
// have, such as instances of language models.
func (d *Plan) DeviceParts() []DevicePart {
	if s, ok := d.Section.(devicePartsSection); ok {
		if parts := s.deviceParts(d); parts != nil {
			return parts
		}
	}
	var out []DevicePart
	for s := range d.Stages() {
		busy := 0.0
		if s.RPS > 0 && d.findPool(s.Device).Sharing != SharingTime {
			busy = min(s.Pipeline.RPS/s.RPS, 1)
		}
		label := s.Deployed.Key().String()
		if s.Blocks != [2]int{0, s.Deployed.NumBlocks} {
			label += fmt.Sprintf(" [%d,%d)", s.Blocks[0], s.Blocks[1])
		}
		for _, place := range s.Placement {
			out = slices.AppendSeq(out, slices.Values(place.parts(s.Stage, label, busy)))
		}
	}
	return out
}

// parts returns the parts of a stage that a placement puts on devices: one for all devices with PerDevice replicas, and
// one for the last device if it has fewer.
func (p *Placement) parts(s *Stage, label string, busy float64) []DevicePart {
	perDevice, share := max(p.PerDevice, 1), s.GPUs/float64(max(s.Replicas, 1))
	full := p.Replicas / perDevice
	var out []DevicePart
	if full > 0 {
		out = append(out, DevicePart{Device: s.Device, First: p.FirstDevice, Count: full, Label: label, Share: share * float64(perDevice), Busy: busy})
	}
	if rest := p.Replicas % perDevice; rest > 0 {
		out = append(out, DevicePart{Device: s.Device, First: p.FirstDevice + full, Count: 1, Label: label, Share: share * float64(rest), Busy: busy})
	}
	return out
}

// findPool returns the pool of a kind of device, or an empty one.
func (d *Plan) findPool(device string) *Pool {
	if p := document.First(d.Pools, func(p *Pool) bool { return p.Device == device }); p != nil {
		return p
	}
	return &Pool{}
}

// Layout returns the devices of a plan by pool, with what runs on each. Neighbouring devices with the same parts are
// one group.
func (d *Plan) Layout() []DeviceGroup {
	parts := d.DeviceParts()
	var out []DeviceGroup
	for i := range d.Pools {
		pool := &d.Pools[i]

		// A group begins where a part begins or ends.
		bounds := []int{0, pool.Count}
		for _, p := range parts {
			if p.Device == pool.Device {
				bounds = append(bounds, p.First, p.First+p.Count)
			}
		}
		slices.Sort(bounds)
		bounds = slices.Compact(bounds)
		for k := 1; k < len(bounds) && bounds[k] <= pool.Count; k++ {
			group := DeviceGroup{Device: pool.Device, First: bounds[k-1], Count: bounds[k] - bounds[k-1], SharesTime: pool.Sharing == SharingTime, UnusedShare: 1}
			for _, p := range parts {
				if p.Device == pool.Device && p.First <= group.First && p.First+p.Count > group.First {
					group.add(p)
				}
			}
			if n := len(out); n > 0 && out[n-1].joins(&group) {
				out[n-1].Count += group.Count
				continue
			}
			out = append(out, group)
		}
	}
	return out
}

// add adds a part to the group. It joins a part with the same label, as several replicas of a stage.
func (g *DeviceGroup) add(p DevicePart) {
	g.UnusedShare = max(g.UnusedShare-p.Share, 0)
	if same := document.First(g.Parts, func(o *DevicePart) bool { return o.Label == p.Label }); same != nil {
		same.Share, same.Busy = same.Share+p.Share, max(same.Busy, p.Busy)
		return
	}
	g.Parts = append(g.Parts, p)
}

// joins reports whether a group follows g on the same pool and has the same parts.
func (g *DeviceGroup) joins(next *DeviceGroup) bool {
	return g.Device == next.Device && g.First+g.Count == next.First && slices.EqualFunc(g.Parts, next.Parts, func(a, b DevicePart) bool {
		return a.Label == b.Label && a.Share == b.Share && a.Busy == b.Busy
	})
}
