package workflow

import "inferplan/policy"

// Routing gives tasks their devices in place of the search, for baselines.
type Routing interface {
	// RequestArrived is called when a request arrives, and TimerFired when a timer with the tag 0 fires. Both may ask for
	// timers.
	RequestArrived(now int64, out *policy.Actions)
	TimerFired(now int64, out *policy.Actions)
	// CountTask is called when a task of a service becomes known (delta 1) or ends (delta -1).
	CountTask(now int64, service int32, delta int)
	// NextDevice returns the index of the device for the next task of a service. If no device is left for it, it returns -1.
	NextDevice(service int32) int32
	// HoldsNetwork returns true if a network is to be loaded on a device even if no task needs it.
	HoldsNetwork(network, deviceIndex int32) bool
	// DeviceLost is called when a device is lost.
	DeviceLost(deviceIndex int32)
}

// DeviceView is the read access of a routing to the devices. Devices are numbered by device index.
type DeviceView struct{ c *cluster }

// Len returns the number of devices.
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
	device, taskCount := &v.c.devices[deviceIndex], 0
	if device.isBusy && device.runningService == service {
		taskCount = len(device.runningTasks)
	}
	for _, taskID := range device.queue {
		if v.c.registry.tasks[taskID].service == service {
			taskCount++
		}
	}
	return taskCount
}

// Memory returns the bytes that a device has for networks. It is 0 if no network is loaded there at run time.
func (v DeviceView) Memory(deviceIndex int32) int64 { return v.c.devices[deviceIndex].memoryBytes }

// Network returns the network of a service.
func (v DeviceView) Network(service int32) int32 { return v.c.tables.services[service].network }

// Bytes returns the size of the network of a service.
func (v DeviceView) Bytes(service int32) int64 { return v.c.tables.networkBytes[v.Network(service)] }

// TouchAll makes the policy look, before the present event has been handled, whether a load can start on any device.
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

// rankedTask returns the description of a task that has just been placed, by which Options.OrderKey decides its order in the queue of its device.
// minRemaining is the least time in ns from the task's end to that of its request.
func (p *placer) rankedTask(now int64, task *task, minRemaining int64) RankedTask {
	ranked := RankedTask{Now: now, Expected: task.requestNumber < 0, MinRemaining: minRemaining, MeanBacklog: p.cluster.meanBacklog(now), SoloTime: p.tables.batchTime(task.service, task.deviceIndex, 1, task.workFactor)}
	if !ranked.Expected {
		ranked.Deadline = p.registry.requests[task.requestNumber].deadline
	}
	return ranked
}
