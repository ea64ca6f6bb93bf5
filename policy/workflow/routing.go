package workflow

import "inferplan/policy"

// Routing gives tasks their devices in place of the search, for baselines.
type Routing interface {
	// RequestArrived is called when a request arrives, and TimerFired when a timer with the tag 0 fires. Both may ask for
	// timers.
	RequestArrived(now int64, out *policy.Actions)
	TimerFired(now int64, out *policy.Actions)
	// CountTask is called when a task becomes known (by is 1) or ends (by is -1).
	CountTask(now int64, service int32, by int)
	// PlaceOf returns the place of the next task of a service. If no device is left for it, it returns -1.
	PlaceOf(service int32) int32
	// HoldsNetwork returns true if a network is to be loaded at a place even if no task needs it.
	HoldsNetwork(network, place int32) bool
	// DeviceLost is called when a device is lost.
	DeviceLost(place int32)
}

// DeviceView is the read access of a routing to the devices.
type DeviceView struct{ c *cluster }

// Len returns the number of places.
func (v DeviceView) Len() int32 { return int32(len(v.c.devices)) }

// Services returns the number of services.
func (v DeviceView) Services() int32 { return int32(len(v.c.tables.services)) }

// CanRun returns true if a device is up and can run a service.
func (v DeviceView) CanRun(deviceIndex, service int32) bool {
	return !v.c.devices[deviceIndex].isDown && v.c.tables.canRun(service, deviceIndex)
}

// HasNetwork returns true if the network of a service is loaded on a device.
func (v DeviceView) HasNetwork(deviceIndex, service int32) bool {
	return v.c.devices[deviceIndex].holdsNetwork[v.Network(service)]
}

// WaitingTasks returns the number of tasks of a service on a device, those in its batch included.
func (v DeviceView) WaitingTasks(deviceIndex, service int32) int {
	device, n := &v.c.devices[deviceIndex], 0
	if device.isBusy && device.runningService == service {
		n = len(device.runningTasks)
	}
	for _, taskID := range device.queue {
		if v.c.registry.tasks[taskID].service == service {
			n++
		}
	}
	return n
}

// Memory returns the bytes that a device has for networks.
func (v DeviceView) Memory(deviceIndex int32) int64 { return v.c.devices[deviceIndex].memoryBytes }

// Network returns the network of a service.
func (v DeviceView) Network(service int32) int32 { return v.c.tables.services[service].network }

// Bytes returns the size of the network of a service.
func (v DeviceView) Bytes(service int32) int64 { return v.c.tables.networkBytes[v.Network(service)] }

// TouchAll makes the policy look at the loads of all devices before the turn ends.
func (v DeviceView) TouchAll() {
	for deviceIndex := range v.c.devices {
		v.c.touchDevice(int32(deviceIndex))
	}
}

// RankedTask describes a task to Options.OrderKey. Times are in ns.
type RankedTask struct {
	Now          int64
	Expected     bool  // it is not revealed yet
	Deadline     int64 // deadline of its request; 0 for an expected task
	MinRemaining int64 // least time from its end to that of its request
	MeanBacklog  int64 // how far devices are booked ahead, on average
	SoloTime     int64 // time of the task in a batch of one
}

// rankedTask describes a task that has just been placed to an OrderKey option, which decides its order in the
// queue.
func (p *placer) rankedTask(now int64, task *task, minRemaining int64) RankedTask {
	r := RankedTask{Now: now, Expected: task.requestNumber < 0, MinRemaining: minRemaining, MeanBacklog: p.cluster.meanBacklog(now), SoloTime: p.tables.batchTime(task.service, task.deviceIndex, 1, task.relativeWork)}
	if !r.Expected {
		r.Deadline = p.registry.requests[task.requestNumber].deadline
	}
	return r
}
