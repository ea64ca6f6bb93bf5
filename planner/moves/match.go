package moves

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/lists"
)

// contentClass is the devices that hold the same.
type contentClass struct {
	content formats.DeviceContent
	devices []int // by number; those that are not assigned yet
}

// classesOf returns some devices by what they hold, in the order of their first device. held is by number.
func classesOf(held []formats.DeviceContent, devices []int) (classes []*contentClass) {
	for _, n := range devices {
		i := slices.IndexFunc(classes, func(c *contentClass) bool { return isEqual(c.content, held[n]) })
		if i < 0 {
			i, classes = len(classes), append(classes, &contentClass{content: held[n]})
		}
		classes[i].devices = append(classes[i].devices, n)
	}
	return classes
}

// isEqual reports whether two devices hold the same.
func isEqual(a, b formats.DeviceContent) bool { return a.Covers(b) && b.Covers(a) }

// matching assigns the contents of a new plan to the devices of a pool, or of a part of it.
type matching struct {
	newClasses, runningClasses []*contentClass
	assigned                   []int // by number in the new plan: the device that takes its place
}

// matchDevices adds to assigned, for each of some devices of a new plan, the device among them that takes its place, so
// that the fewest load what they do not hold. newHeld and runningHeld have what devices hold, by number.
//
// Devices with equal contents are matched first. No assignment with fewer moves is lost by that: what another device of
// the new plan would have from such a device, it can have from the one that the matched device would have had, which
// holds at least as much. Of the others as many as possible get a device that holds their content, by augmenting paths.
// Where something is loaded, idle devices come first, and every device keeps its number where nothing speaks against it.
func matchDevices(newHeld, runningHeld []formats.DeviceContent, devices, assigned []int) {
	m := &matching{newClasses: classesOf(newHeld, devices), runningClasses: classesOf(runningHeld, devices), assigned: assigned}
	for _, wanted := range m.newClasses {
		for _, running := range m.runningClasses {
			if len(wanted.content) > 0 && isEqual(wanted.content, running.content) {
				m.assign(wanted, running, min(len(wanted.devices), len(running.devices)))
			}
		}
	}
	flows := m.coveringFlows()
	for i, wanted := range m.newClasses {
		for j, running := range m.runningClasses {
			m.assign(wanted, running, flows[i][j])
		}
	}

	// Devices that load something: idle devices, then those that hold least.
	slices.SortStableFunc(m.runningClasses, func(a, b *contentClass) int { return len(a.content) - len(b.content) })
	for _, isIdle := range []bool{false, true} {
		for _, wanted := range m.newClasses {
			for _, running := range m.runningClasses {
				if (len(wanted.content) == 0) == isIdle {
					m.assign(wanted, running, min(len(wanted.devices), len(running.devices)))
				}
			}
		}
	}
}

// assign gives count devices of a class of the new plan as many of a class that runs: their own where both have it.
func (m *matching) assign(wanted, running *contentClass, count int) {
	for _, sameNumber := range []bool{true, false} {
		for i := 0; i < len(wanted.devices) && count > 0; {
			n := wanted.devices[i]
			j := slices.Index(running.devices, n)
			if j < 0 && !sameNumber {
				j = 0
			}
			if j < 0 {
				i++
				continue
			}
			m.assigned[n] = running.devices[j]
			wanted.devices, running.devices = slices.Delete(wanted.devices, i, i+1), slices.Delete(running.devices, j, j+1)
			count--
		}
	}
}

// coveringFlows returns how many devices of each class of the new plan can have one of each class that runs and holds all
// that they need: a maximum flow, by augmenting paths over classes.
func (m *matching) coveringFlows() [][]int {
	remaining := lists.Filled(len(m.runningClasses), func(j int) int { return len(m.runningClasses[j].devices) })
	flows := lists.Filled(len(m.newClasses), func(int) []int { return make([]int, len(m.runningClasses)) })

	// augment finds a place for one more device of class i: in a class with devices left, or in one from which a device of
	// another class can go elsewhere.
	var visited []bool
	var augment func(i int) bool
	augment = func(i int) bool {
		for j, running := range m.runningClasses {
			if visited[j] || len(m.newClasses[i].content) == 0 || !running.content.Covers(m.newClasses[i].content) {
				continue
			}
			visited[j] = true
			if remaining[j] > 0 {
				remaining[j]--
				flows[i][j]++
				return true
			}
			for other := range flows {
				if flows[other][j] > 0 && augment(other) {
					flows[other][j]--
					flows[i][j]++
					return true
				}
			}
		}
		return false
	}
	for i, wanted := range m.newClasses {
		for range wanted.devices {
			if visited = make([]bool, len(m.runningClasses)); !augment(i) {
				break
			}
		}
	}
	return flows
}
