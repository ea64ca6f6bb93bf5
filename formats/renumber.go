package formats

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"inferplan/formats/document"
)

// numberedSection is the section of a plan that refers to devices or to replicas in the order of their devices.
type numberedSection interface {
	// renumber returns a copy of the section with other numbers of devices. replicaOrders has, by deployed model, the
	// present index of each replica in the new order. newNumber returns the new number of a device that is numbered
	// through all pools.
	renumber(replicaOrders [][]int, newNumber func(device int) int) PlanSection
}

// WithDeviceNumbers returns a copy of a plan whose devices have other numbers: newNumbers has, by pool, a permutation of
// the numbers of its devices. Everything that refers to devices follows, so the copy says the same of other devices. If
// the chains of a pipeline of several stages, which pair devices by their order, cannot be paired alike under the new
// numbers, there is no copy: err names the pipeline, and fixed has its pools.
func (d *Plan) WithDeviceNumbers(newNumbers [][]int) (renumbered *Plan, fixed []int, err error) {
	poolOf := func(s *Stage) int {
		return slices.IndexFunc(d.Pools, func(p Pool) bool { return p.Device == s.Device })
	}
	plan := *d
	plan.Deployment = slices.Clone(d.Deployment)
	replicaOrders := make([][]int, len(d.Deployment))
	for i := range plan.Deployment {
		deployed := &plan.Deployment[i]
		deployed.Pipelines = slices.Clone(deployed.Pipelines)
		for j := range deployed.Pipelines {
			l := &deployed.Pipelines[j]
			order, ok := l.replicaOrder(func(s *Stage, device int) int { return newNumbers[poolOf(s)][device] })
			if !ok {
				for k := range l.Stages {
					fixed = append(fixed, poolOf(&l.Stages[k]))
				}
				return nil, fixed, &document.Error{Path: fmt.Sprintf("deployment[%d].pipelines[%d]", i, j), Found: "chains that these numbers of devices pair otherwise", Expected: "stages each of whose devices serves as many chains"}
			}
			firstReplica := len(replicaOrders[i])
			for _, n := range order {
				replicaOrders[i] = append(replicaOrders[i], firstReplica+n)
			}
			l.Stages = slices.Clone(l.Stages)
			for k := range l.Stages {
				l.Stages[k].Placement = l.Stages[k].placementOn(newNumbers[poolOf(&l.Stages[k])])
			}
		}
	}
	if section, ok := plan.Section.(numberedSection); ok {
		plan.Section = section.renumber(replicaOrders, func(number int) int {
			k, n, ok := d.poolDevice(number)
			if !ok {
				return number
			}
			return number - n + newNumbers[k][n]
		})
	}
	return &plan, nil, nil
}

// Devices yields the device of every replica of the stage, in the order of its placements. A device comes as often as it
// has replicas.
func (s *Stage) Devices() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, g := range s.Placement {
			for r := range g.Replicas {
				if !yield(g.FirstDevice + r/max(g.PerDevice, 1)) {
					return
				}
			}
		}
	}
}

// DevicesBelow returns how many devices of the stage have a number below a limit.
func (s *Stage) DevicesBelow(limit int) (count int) {
	for _, g := range s.Placement {
		count += max(0, min(g.DeviceCount(), limit-g.FirstDevice))
	}
	return count
}

// RunsOn reports whether a stage of a deployed model has a replica on a device.
func (d *Deployed) RunsOn(device string, number int) bool {
	for s := range d.stagesOn(device) {
		for n := range s.Devices() {
			if n == number {
				return true
			}
		}
	}
	return false
}

// replicaOrder returns the order of a pipeline's replicas (chains of one device per stage) under other numbers of
// devices: the present index of each. ok is false if the new order of the devices pairs them otherwise.
func (l *Pipeline) replicaOrder(newNumber func(s *Stage, device int) int) (order []int, ok bool) {
	// The devices of every stage by number, and by their new numbers.
	chains := l.ChainCount()
	before, after := make([][]int, len(l.Stages)), make([][]int, len(l.Stages))
	for k := range l.Stages {
		before[k] = slices.Sorted(l.Stages[k].Devices())
		for _, n := range before[k] {
			after[k] = append(after[k], newNumber(&l.Stages[k], n))
		}
		if len(before[k]) == 0 || chains%len(before[k]) != 0 {
			return nil, false
		}
	}

	// A chain has one device per stage. Where a stage has fewer, each serves consecutive chains.
	tupleOf := func(devices [][]int, chain int) string {
		text := ""
		for k := range devices {
			text += fmt.Sprint(devices[k][chain/(chains/len(devices[k]))], " ")
		}
		return text
	}
	chainsOf := map[string][]int{} // by their devices under the new numbers: the present chains
	for n := range chains {
		key := tupleOf(after, n)
		chainsOf[key] = append(chainsOf[key], n)
	}
	for k := range after {
		slices.Sort(after[k])
	}
	for n := range chains {
		key := tupleOf(after, n)
		list := chainsOf[key]
		if len(list) == 0 {
			return nil, false
		}
		order, chainsOf[key] = append(order, list[0]), list[1:]
	}
	return order, true
}

// placementOn returns the stage's placements with other numbers of its devices, which newNumbers has by number, in the
// order of the new numbers. Consecutive devices with as many replicas each form one placement.
func (s *Stage) placementOn(newNumbers []int) (list []Placement) {
	type device struct{ number, perDevice, replicas int }
	var devices []device
	for _, g := range s.Placement {
		for n := range g.DeviceCount() {
			devices = append(devices, device{newNumbers[g.FirstDevice+n], g.PerDevice, min(g.PerDevice, g.Replicas-n*g.PerDevice)})
		}
	}
	slices.SortStableFunc(devices, func(a, b device) int { return cmp.Compare(a.number, b.number) })
	for _, d := range devices {
		if n := len(list); n > 0 && list[n-1].FirstDevice+list[n-1].DeviceCount() == d.number && list[n-1].PerDevice == d.perDevice && list[n-1].Replicas%d.perDevice == 0 {
			list[n-1].Replicas += d.replicas
			continue
		}
		list = append(list, Placement{FirstDevice: d.number, PerDevice: d.perDevice, Replicas: d.replicas})
	}
	return list
}
