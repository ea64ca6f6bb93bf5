package workflow

import "inferplan/policy"

// cluster is the state that all parts of the policy share: requests and their tasks, and devices with what they hold and will do.
// Devices are numbered by a device index: their position when the plan's devices are sorted by node.
type cluster struct {
	registry       *registry // open requests and their tasks
	options        Options
	tables         *deviceTables // times of services and transfers, from the tables of the plan
	devices        []device      // by device index
	copyCount      []int32       // by network: number of devices that hold it or load it
	demand         networkDemand // how often tasks need each network
	busyDevices    int           // number of devices that run a batch
	touchedDevices []int32       // indexes of the devices that the present event has changed
	isTouched      []bool        // by device index: whether it is in touchedDevices
	routing        Routing       // gives tasks their devices in place of the search; nil if the search does
}

// newCluster returns a cluster of idle devices without requests. Each device holds the networks that the plan loads there before the start.
func newCluster(planTables *policy.Tables, opt Options) *cluster {
	c := &cluster{registry: &registry{}, options: opt, tables: newDeviceTables(planTables), copyCount: make([]int32, len(planTables.Networks)), isTouched: make([]bool, len(planTables.Devices))}
	c.demand = newNetworkDemand(len(planTables.Networks), len(planTables.Devices))
	for deviceIndex := range planTables.Devices {
		c.devices = append(c.devices, newDevice(len(planTables.Networks)))
		c.resetDevice(int32(deviceIndex))
	}
	return c
}

// resetDevice empties the memory of a device and then loads the networks that the plan has it hold at the start (its resident networks).
// It is called at the start, when a device is lost, and when it comes back. The caller has removed the session states from it before.
// It keeps copyCount, the number of devices that hold or load each network, up to date.
func (c *cluster) resetDevice(deviceIndex int32) {
	device, planDevice := &c.devices[deviceIndex], c.tables.planDevice[deviceIndex]
	device.memoryBytes, device.usedBytes = 0, 0
	if int(planDevice) < len(c.tables.planTables.Memory) {
		device.memoryBytes = c.tables.planTables.Memory[planDevice]
	}

	// Forget what it holds or loads.
	for network := range device.holdsNetwork {
		if device.holdsNetwork[network] || device.loadingNetwork == int32(network) {
			c.copyCount[network]--
		}
	}
	clear(device.holdsNetwork)
	device.loadingNetwork = -1

	// Load the resident networks.
	if int(planDevice) < len(c.tables.planTables.Resident) {
		for _, network := range c.tables.planTables.Resident[planDevice] {
			device.holdsNetwork[network] = true
			c.copyCount[network]++
			device.usedBytes += c.tables.networkBytes[network]
		}
	}
	device.planOutdated = true
}

// touchDevice notes that the present event has changed a device. Before the event has been handled,
// batchRunner.startTouched then starts the batches and loads that have become possible on each such device.
func (c *cluster) touchDevice(deviceIndex int32) {
	if !c.isTouched[deviceIndex] {
		c.isTouched[deviceIndex] = true
		c.touchedDevices = append(c.touchedDevices, deviceIndex)
	}
}

// isRunnable returns true if a task in a device's queue may run there now: it is revealed (not only predicted), the outputs that it reads and
// the session state that it continues have arrived at the device, and the device holds the network of its service.
func (c *cluster) isRunnable(device *device, task *task) bool {
	return task.isRevealed() && task.pendingInputs == 0 && task.inputsDevice == task.deviceIndex && !task.stateInTransit && device.holdsNetwork[c.tables.services[task.service].network]
}

// isStuck returns true if a device runs nothing and no task in its queue may run.
// Then even networks that revealed tasks need may be evicted, because the device would otherwise stand still for ever.
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

// needsEviction returns true if a device has to evict other networks to load a network,
// because the free memory is too small beside the loads that are planned there.
// It returns false if the device holds the network, loads it, or plans to load it.
func (c *cluster) needsEviction(deviceIndex, network int32) bool {
	device := &c.devices[deviceIndex]
	if device.networkReadyAt(network) >= 0 {
		return false
	}
	freeBytes := device.memoryBytes - device.usedBytes // planned loads take their part of these
	for i := range device.plannedLoads {
		freeBytes -= c.tables.networkBytes[device.plannedLoads[i].network]
	}
	return freeBytes < c.tables.networkBytes[network]
}

// unqueueTask removes a task from the queue of its device. The task is unplaced afterwards, which means that it has to be given a device again.
func (c *cluster) unqueueTask(taskID int32) {
	task := &c.registry.tasks[taskID]
	c.devices[task.deviceIndex].dequeue(taskID)
	task.progress = taskUnplaced
	c.touchDevice(task.deviceIndex)
}

// countTask reports to the routing (a rule that places tasks in place of the search) that a task of a service became known (delta 1) or
// ended (delta -1). Without a routing it does nothing.
func (c *cluster) countTask(now int64, service int32, delta int) {
	if c.routing != nil {
		c.routing.CountTask(now, service, delta)
	}
}

// meanBacklog returns the mean over all devices of the time, in ns from now, until a device has run all tasks in its queue.
func (c *cluster) meanBacklog(now int64) int64 {
	sum := int64(0)
	for deviceIndex := range c.devices {
		sum += max(0, c.devices[deviceIndex].planEnd-now)
	}
	return sum / int64(len(c.devices))
}

// countDemand counts that a task needs the network of a service. It counts only if the options evict networks by value, because only then
// the demand is read.
func (c *cluster) countDemand(now int64, service int32) {
	if c.options.EvictByValue {
		c.demand.countTask(now, c.tables.services[service].network, c.busyShare())
	}
}

// busyShare returns the share of the devices, from 0 to 1, that run a batch now.
func (c *cluster) busyShare() float64 { return float64(c.busyDevices) / float64(len(c.devices)) }
