package formats

import (
	"fmt"
	"slices"
	"strings"
)

// HeldPart is a part of a model that a device holds at the start of a plan.
type HeldPart struct {
	Model      string
	SHA256     string // digest of the model file; empty if it is not known
	Blocks     [2]int // [first, last)
	WholeModel bool   //  Blocks are all of the model
	Share      int    // v of the 1/v of the device that a replica has
}

// Equals reports whether two parts are the same, so that a device which holds one need not load the other. A digest that
// is not known equals any.
func (h *HeldPart) Equals(o *HeldPart) bool {
	sameFile := h.SHA256 == o.SHA256 || h.SHA256 == "" || o.SHA256 == ""
	return h.Model == o.Model && h.Blocks == o.Blocks && h.WholeModel == o.WholeModel && h.Share == o.Share && sameFile
}

// String returns the part as people read it, such as "resnet50 [0,5)" or, for a quarter of a device, "bert at 1/4".
func (h *HeldPart) String() string {
	text := h.Model
	if !h.WholeModel {
		text += fmt.Sprintf(" [%d,%d)", h.Blocks[0], h.Blocks[1])
	}
	if h.Share > 1 {
		text += fmt.Sprintf(" at 1/%d", h.Share)
	}
	return text
}

// DeviceContent lists the parts that a device holds, in the order of their texts, each once.
type DeviceContent []HeldPart

// add adds a part, unless the device holds it already.
func (c *DeviceContent) add(part HeldPart) {
	if !c.holds(&part) {
		*c = append(*c, part)
	}
}

// holds reports whether a part is among those of the device.
func (c DeviceContent) holds(part *HeldPart) bool {
	return slices.ContainsFunc(c, func(o HeldPart) bool { return o.Equals(part) })
}

// Covers reports whether a device that holds c need not load anything to hold o.
func (c DeviceContent) Covers(o DeviceContent) bool {
	return !slices.ContainsFunc(o, func(part HeldPart) bool { return !c.holds(&part) })
}

// String returns the parts with a plus between them. It is empty for an idle device.
func (c DeviceContent) String() string {
	texts := make([]string, len(c))
	for i := range c {
		texts[i] = c[i].String()
	}
	return strings.Join(texts, " + ")
}

// residentSection is the section of a plan whose devices hold other models at the start than those that may run there.
type residentSection interface {
	// residentDevices returns, by deployed model, the devices that hold it at the start, numbered through all pools. It
	// returns nil if devices hold what the deployment places on them.
	residentDevices() [][]int
}

// HeldByDevice returns what every device of the plan's pools holds at the start, by pool and number. Placements on devices
// that a pool does not have are left out.
func (d *Plan) HeldByDevice() [][]DeviceContent {
	held := make([][]DeviceContent, len(d.Pools))
	for k := range d.Pools {
		held[k] = make([]DeviceContent, max(0, min(d.Pools[k].Count, maxCount)))
	}

	// Models that devices hold whatever may run there.
	if section, ok := d.Section.(residentSection); ok {
		if residents := section.residentDevices(); residents != nil {
			for i := range min(len(residents), len(d.Deployment)) {
				m := &d.Deployment[i]
				for _, number := range residents[i] {
					if k, n, ok := d.poolDevice(number); ok {
						held[k][n].add(HeldPart{Model: m.Model, SHA256: m.SHA256, Blocks: [2]int{0, m.NumBlocks}, WholeModel: true, Share: 1})
					}
				}
			}
			return sortContents(held)
		}
	}

	// What the deployment places.
	for s := range d.Stages() {
		k := slices.IndexFunc(d.Pools, func(p Pool) bool { return p.Device == s.Device })
		for n := range s.Devices() {
			if k >= 0 && n >= 0 && n < len(held[k]) {
				held[k][n].add(HeldPart{Model: s.Deployed.Model, SHA256: s.Deployed.SHA256, Blocks: s.Blocks, WholeModel: s.Blocks == [2]int{0, s.Deployed.NumBlocks}, Share: max(s.Share, 1)})
			}
		}
	}
	return sortContents(held)
}

// sortContents puts the parts of every device in the order of their texts, and returns the contents.
func sortContents(held [][]DeviceContent) [][]DeviceContent {
	for k := range held {
		for _, content := range held[k] {
			slices.SortFunc(content, func(a, b HeldPart) int { return strings.Compare(a.String(), b.String()) })
		}
	}
	return held
}

// poolDevice returns the pool and the number within it of a device that is numbered through all pools. ok is false if
// there is no such device.
func (d *Plan) poolDevice(number int) (pool, device int, ok bool) {
	for k := range d.Pools {
		if number < d.Pools[k].Count {
			return k, number, number >= 0
		}
		number -= d.Pools[k].Count
	}
	return 0, 0, false
}
