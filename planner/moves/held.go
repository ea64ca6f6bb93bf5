package moves

import (
	"slices"

	"inferplan/formats"
)

// HeldByPool returns what the devices of some pools hold under a plan that runs, by pool and number. Devices that it does
// not have hold nothing, and those that the pools no longer have are left out.
func HeldByPool(running *formats.Plan, pools []formats.Pool) [][]formats.DeviceContent {
	runningHeld := running.HeldByDevice()
	held := make([][]formats.DeviceContent, len(pools))
	for k := range pools {
		held[k] = make([]formats.DeviceContent, pools[k].Count)
		if i := slices.IndexFunc(running.Pools, func(p formats.Pool) bool { return p.Device == pools[k].Device }); i >= 0 {
			copy(held[k], runningHeld[i])
		}
	}
	return held
}

// WholeModel returns a deployed model as a device holds all of it, at a share of 1/share of the device.
func WholeModel(d *formats.Deployed, share int) formats.HeldPart {
	return formats.HeldPart{Model: d.Model, SHA256: d.SHA256, Blocks: [2]int{0, d.NumBlocks}, WholeModel: true, Share: share}
}

// IsUnchanged reports whether a device that holds a part, at a share of 1/share, has all of a model as the profile has it
// today: with the same blocks and, if both are known, the same file.
func IsUnchanged(part *formats.HeldPart, today *formats.ProfileModel, share int) bool {
	deployed := today.NewDeployment()
	whole := WholeModel(&deployed, share)
	return part.Equals(&whole)
}
