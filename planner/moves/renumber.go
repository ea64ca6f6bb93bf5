package moves

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// Renumber gives the devices of a new plan, whose parts are in o, other numbers within their pools, so that few load what
// they do not hold under the plan that runs, and notes the moves that remain in o.Replan. Devices of a pool are
// interchangeable, with two exceptions: where requests pass between devices of pools whose devices share network cards,
// devices change numbers only within their node; and where chains of devices cannot be paired alike, the numbers of their
// pools stay. If they cannot be paired under the plan's own numbers either, it returns an error and leaves o as it is.
func Renumber(in *kind.Problem, o *kind.Outcome) error {
	plan := &formats.Plan{Kind: in.RunningPlan.Kind, Pools: o.Pools, Deployment: o.Deployment, Section: o.Section}
	newHeld, runningHeld := plan.HeldByDevice(), HeldByPool(in.RunningPlan, o.Pools)
	numbers := make([][]int, len(o.Pools))
	for k := range o.Pools {
		numbers[k] = make([]int, len(newHeld[k]))
		for _, devices := range interchangeable(plan, &o.Pools[k]) {
			matchDevices(newHeld[k], runningHeld[k], devices, numbers[k])
		}
	}

	// Pools whose chains would be paired otherwise keep their numbers.
	renumbered, fixed, err := plan.WithDeviceNumbers(numbers)
	for err != nil {
		if !slices.ContainsFunc(fixed, func(k int) bool { return !slices.Equal(numbers[k], lists.Indexes(len(numbers[k]))) }) {
			return fmt.Errorf("numbering the devices of the new plan: %w", err)
		}
		for _, k := range fixed {
			numbers[k] = lists.Indexes(len(numbers[k]))
		}
		renumbered, fixed, err = plan.WithDeviceNumbers(numbers)
	}
	o.Deployment, o.Section = renumbered.Deployment, renumbered.Section

	// List the moves.
	o.Replan = &formats.Replan{GPUs: deviceCount(o.Pools), MaxMoved: in.Values.Number("max-moved")}
	for k, held := range renumbered.HeldByDevice() {
		for n := range held {
			if !runningHeld[k][n].Covers(held[n]) {
				addMove(o.Replan, formats.DeviceMove{Device: o.Pools[k].Device, First: n, Count: 1, OldContent: runningHeld[k][n].String(), NewContent: held[n].String()})
			}
		}
	}
	return nil
}

// addMove adds the move of one device, as a part of the last one if it is the same of a neighbour.
func addMove(r *formats.Replan, move formats.DeviceMove) {
	r.MovedGPUs++
	if n := len(r.Moves); n > 0 {
		last := &r.Moves[n-1]
		if last.Device == move.Device && last.First+last.Count == move.First && last.OldContent == move.OldContent && last.NewContent == move.NewContent {
			last.Count++
			return
		}
	}
	r.Moves = append(r.Moves, move)
}

// interchangeable returns the devices of a pool in groups within which they can change their numbers: all of them or,
// where it matters for the plan which of them share a network card, those of each node.
func interchangeable(plan *formats.Plan, pool *formats.Pool) (groups [][]int) {
	perNode := max(pool.Count, 1)
	if nodes := max(pool.PerNode, 1); nodes > 1 && pool.NICRate() > 0 && passesBetweenDevices(plan) {
		perNode = nodes
	}
	return slices.Collect(slices.Chunk(lists.Indexes(pool.Count), perNode))
}

// passesBetweenDevices reports whether requests of a plan pass from one device to another: between the stages of a
// pipeline, or between the tasks of a workflow.
func passesBetweenDevices(plan *formats.Plan) bool {
	for s := range plan.Stages() {
		if s.Position > 0 {
			return true
		}
	}
	return formats.MeetsAllOpen(plan)
}
