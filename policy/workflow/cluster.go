package workflow

import "inferplan/policy"

// cluster is the state that all parts of the policy act on: requests and their tasks, and the devices with what they
// hold and will do.
type cluster struct {
	registry       *registry
	options        Options
	tables         *deviceTables // services and devices, from the tables
	devices        []device
	copyCount      []int32 // by network: devices that hold it or load it
	demand         networkDemand
	busyDevices    int     // devices that run a batch
	touchedDevices []int32 // places that an event has touched in this turn
	isTouched      []bool  // by place: whether it is in that list
	routing        Routing // places tasks in place of the search; nil if the search does
}

// newCluster returns a cluster with idle devices that hold what the tables say for the start.
func newCluster(planTables *policy.Tables, opt Options) *cluster {
	c := &cluster{registry: &registry{}, options: opt, tables: newDeviceTables(planTables), copyCount: make([]int32, len(planTables.Networks)), isTouched: make([]bool, len(planTables.Devices))}
	c.demand = newNetworkDemand(len(planTables.Networks), len(planTables.Devices))
	for deviceIndex := range planTables.Devices {
		c.devices = append(c.devices, newDevice(len(planTables.Networks)))
		c.resetDevice(int32(deviceIndex))
	}
	return c
}

// resetDevice sets a device to what it holds at the start: the resident networks of the plan. It is called at the
// start, and when a device was lost or comes back. The caller has cleared its session states. copyCount is how many
// devices have each network.
func (c *cluster) resetDevice(deviceIndex int32) {
	device, planDevice := &c.devices[deviceIndex], c.tables.planDevice[deviceIndex]
	device.memoryBytes, device.usedBytes = 0, 0
	if int(planDevice) < len(c.tables.planTables.Memory) {
		device.memoryBytes = c.tables.planTables.Memory[planDevice]
	}
	for network := range device.holdsNetwork {
		if device.holdsNetwork[network] || device.loadingNetwork == int32(network) {
			c.copyCount[network]--
		}
	}
	clear(device.holdsNetwork)
	device.loadingNetwork = -1
	if int(planDevice) < len(c.tables.planTables.Resident) {
		for _, network := range c.tables.planTables.Resident[planDevice] {
			device.holdsNetwork[network] = true
			c.copyCount[network]++
			device.usedBytes += c.tables.networkBytes[network]
		}
	}
	device.planOutdated = true
}

// touchDevice makes startTouched look at a device before the turn ends.
func (c *cluster) touchDevice(deviceIndex int32) {
	if !c.isTouched[deviceIndex] {
		c.isTouched[deviceIndex] = true
		c.touchedDevices = append(c.touchedDevices, deviceIndex)
	}
}

// isRunnable returns true if a task in a device's queue may run there: it is revealed, its inputs and its session state
// are there, and its network is loaded.
func (c *cluster) isRunnable(device *device, task *task) bool {
	return task.taskNumber >= 0 && task.pendingInputs == 0 && task.inputsDevice == task.deviceIndex && !task.stateInTransit && device.holdsNetwork[c.tables.services[task.service].network]
}

// isStuck returns true if a device runs nothing and no task in its queue may run. Then networks that revealed tasks
// need may be evicted, because it would stand still for ever.
func (c *cluster) isStuck(device *device) bool {
	if device.isBusy {
		return false
	}
	for _, taskID := range device.queue {
		if c.isRunnable(device, &c.registry.tasks[taskID]) {
			return false
		}
	}
	return true
}

// needsEviction returns true if a network would not fit beside those that a device holds or plans to load. It returns false
// if the network is one of these itself.
func (c *cluster) needsEviction(deviceIndex, network int32) bool {
	device := &c.devices[deviceIndex]
	if device.networkReadyAt(network) >= 0 {
		return false
	}
	freeBytes := device.memoryBytes - device.usedBytes
	for i := range device.plannedLoads {
		freeBytes -= c.tables.networkBytes[device.plannedLoads[i].network]
	}
	return freeBytes < c.tables.networkBytes[network]
}

// unqueueTask removes a task from the queue of its device. The task then has no place.
func (c *cluster) unqueueTask(taskID int32) {
	task := &c.registry.tasks[taskID]
	c.devices[task.deviceIndex].dequeue(taskID)
	task.progress = taskUnplaced
	c.touchDevice(task.deviceIndex)
}

// countTask reports to the routing, if there is one, that a task became known (delta 1) or ended (-1).
func (c *cluster) countTask(now int64, service int32, delta int) {
	if c.routing != nil {
		c.routing.CountTask(now, service, delta)
	}
}

// meanBacklog returns how far ahead devices are booked, in ns: the mean over the devices.
func (c *cluster) meanBacklog(now int64) int64 {
	sum := int64(0)
	for i := range c.devices {
		sum += max(0, c.devices[i].planEnd-now)
	}
	return sum / int64(len(c.devices))
}

// countDemand counts that a task needs a service, if networks are evicted by value.
func (c *cluster) countDemand(now int64, service int32) {
	if c.options.EvictByValue {
		c.demand.countTask(now, c.tables.services[service].network, c.busyShare())
	}
}

// busyShare returns the share of the devices that run a batch.
func (c *cluster) busyShare() float64 { return float64(c.busyDevices) / float64(len(c.devices)) }
