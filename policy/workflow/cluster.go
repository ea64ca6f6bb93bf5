package workflow

import "inferplan/policy"

// cluster is the state that all parts of the policy act on: requests and their tasks, and the devices with what they
// hold and will do.
type cluster struct {
	book          *taskTable
	options       Options
	tables        *deviceTables // services and devices, from the tables
	devices       []device
	copyCount     []int32 // by network: devices that hold it or load it
	demand        networkDemand
	busyDevices   int     // devices that run a batch
	touchedPlaces []int32 // places that an event has touched in this turn
	isTouched     []bool  // by place: whether it is in that list
	routing       Routing // places tasks in place of the search; nil if the search does
}

// newCluster returns a cluster with idle devices that hold what the tables say for the start.
func newCluster(t *policy.Tables, opt Options) *cluster {
	c := &cluster{book: &taskTable{}, options: opt, tables: newDeviceTables(t), copyCount: make([]int32, len(t.Networks)), isTouched: make([]bool, len(t.Devices))}
	c.demand = newNetworkDemand(len(t.Networks), len(t.Devices))
	for place := range t.Devices {
		c.devices = append(c.devices, newDevice(len(t.Networks)))
		c.resetDevice(int32(place))
	}
	return c
}

// resetDevice sets a device to what it holds at the start: the resident networks of the plan. It is called at the
// start, and when a device was lost or comes back. The caller has cleared its session states. copyCount is how many
// devices have each network.
func (c *cluster) resetDevice(place int32) {
	d, id := &c.devices[place], c.tables.deviceAt[place]
	d.memoryBytes, d.usedBytes = 0, 0
	if int(id) < len(c.tables.source.Memory) {
		d.memoryBytes = c.tables.source.Memory[id]
	}
	for n := range d.loaded {
		if d.loaded[n] || d.loading == int32(n) {
			c.copyCount[n]--
		}
	}
	clear(d.loaded)
	d.loading = -1
	if int(id) < len(c.tables.source.Resident) {
		for _, n := range c.tables.source.Resident[id] {
			d.loaded[n] = true
			c.copyCount[n]++
			d.usedBytes += c.tables.bytes[n]
		}
	}
	d.dirty = true
}

// touchDevice makes startTouched look at a device before the turn ends.
func (c *cluster) touchDevice(place int32) {
	if !c.isTouched[place] {
		c.isTouched[place] = true
		c.touchedPlaces = append(c.touchedPlaces, place)
	}
}

// isRunnable returns true if a task in a device's queue may run there: it is revealed, its inputs and its session state
// are there, and its network is loaded.
func (c *cluster) isRunnable(d *device, k *task) bool {
	return k.slot >= 0 && k.pendingInputs == 0 && k.inputsAt == k.place && !k.stateInTransit && d.loaded[c.tables.services[k.service].network]
}

// isStuck returns true if a device runs nothing and no task in its queue may run. Then networks that revealed tasks
// need may be evicted, because it would stand still for ever.
func (c *cluster) isStuck(d *device) bool {
	if d.busy {
		return false
	}
	for _, id := range d.queue {
		if c.isRunnable(d, &c.book.tasks[id]) {
			return false
		}
	}
	return true
}

// crowdsOut returns true if a network would not fit beside those that a device holds or plans to load. It returns false
// if the network is one of these itself.
func (c *cluster) crowdsOut(place, network int32) bool {
	d := &c.devices[place]
	if d.networkReadyAt(network) >= 0 {
		return false
	}
	freeBytes := d.memoryBytes - d.usedBytes
	for i := range d.plannedLoads {
		freeBytes -= c.tables.bytes[d.plannedLoads[i].network]
	}
	return freeBytes < c.tables.bytes[network]
}

// unqueueTask removes a task from the queue of its device. The task then has no place.
func (c *cluster) unqueueTask(id int32) {
	k := &c.book.tasks[id]
	c.devices[k.place].dequeue(id)
	k.state = taskUnplaced
	c.touchDevice(k.place)
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
