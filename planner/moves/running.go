package moves

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// CheckRunning returns an error if a new plan cannot start from the one that runs: that must be of the kind that the
// workload asks for, on a kind of devices that the cluster has, and with one of the models that models lists, those that
// the workload asks for.
func CheckRunning(p *kind.Problem, kindName string, models []string) error {
	running := p.RunningPlan
	if running.Kind != kindName {
		return p.FieldError("running", "kind", running.Kind, kindName, "the workload asks for a plan of kind "+kindName+": start from a plan of that kind, or leave out --from")
	}
	if p.Cluster != nil {
		devices, clusterDevices := kindsOf(running.Pools), kindsOf(p.Cluster.Pools)
		if !slices.ContainsFunc(devices, func(d string) bool { return slices.Contains(clusterDevices, d) }) {
			return p.FieldError("running", "pools", "devices of kind "+strings.Join(devices, ", "), "one of those of "+p.FileName("cluster")+": "+strings.Join(clusterDevices, ", "), "start from a plan for these devices, or leave out --from")
		}
	}
	deployed := document.Map(running.Deployment, func(d *formats.Deployed) string { return d.Model })
	if !slices.ContainsFunc(deployed, func(m string) bool { return slices.Contains(models, m) }) {
		return p.FieldError("running", "deployment", "the models "+strings.Join(deployed, ", "), "one of those that "+p.FileName("workload")+" asks for: "+strings.Join(models, ", "), "start from a plan for these models, or leave out --from")
	}
	return nil
}

// kindsOf returns the kinds of the devices of some pools.
func kindsOf(pools []formats.Pool) []string {
	return document.Map(pools, func(q *formats.Pool) string { return q.Device })
}

// MaxDevices returns the number of devices, of those of some pools, that the option max-moved allows to move.
func MaxDevices(p *kind.Problem, pools []formats.Pool) int {
	return int(p.Values.Number("max-moved")*float64(deviceCount(pools)) + 1e-9)
}

// deviceCount returns the number of devices of some pools.
func deviceCount(pools []formats.Pool) int {
	return lists.Sum(len(pools), func(i int) int { return pools[i].Count })
}

// TooManyError returns the error that no plan was found that moves at most maxMoved devices. The best plan of all moves
// bestMoved devices.
func TooManyError(pools []formats.Pool, maxMoved, bestMoved int) error {
	devices := deviceCount(pools)
	share := math.Ceil(1000*float64(bestMoved)/float64(max(1, devices))) / 1000
	return &kind.InfeasibleError{Constraint: "max-moved", RefutedBySimulation: true, Reason: fmt.Sprintf("no plan was found that keeps the SLOs and loads something new on at most %d of %d devices; the best one does so on %d (--max-moved %.3g)",
		maxMoved, devices, bestMoved, share)}
}

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
