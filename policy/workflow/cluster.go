package workflow

import "inferplan/policy"

// cluster is the state that all parts of the policy act on: requests and their tasks, the devices with what they hold,
// and the plans of the devices.
type cluster struct {
	book
	opt     Options
	fleet   *fleet // services and devices, from the tables
	rows    rows   // when a task would end, by service and place
	devices []device
	copies  []int32 // by network: devices that hold it or load it
	demand  demand
	returns []returning // by service: how often session states are continued
	running int         // devices that run a batch
	touched []int32     // places that an event has touched in this turn
	touch   []bool      // by place: whether it is in that list
	epoch   int32       // current mark of networkEpoch
	marks   []int32     // by network: the epoch in which it was last seen
	latest  []int32     // scratch of a plan: latest queue position by service
	fill    fill
	route   Routing // places tasks in place of the search; nil if the search does

	inSlot    []int32 // sequence by batch slot, counted from the number of devices on
	freeSlots []int32
}

// newCluster returns a cluster with idle devices that hold what the tables say for the start.
func newCluster(t *policy.Tables, opt Options) *cluster {
	c := &cluster{opt: opt, fleet: newFleet(t)}
	c.rows = newRows(len(t.Services), len(t.Devices))
	c.marks, c.copies, c.demand = make([]int32, len(t.Networks)), make([]int32, len(t.Networks)), newDemand(len(t.Networks), len(t.Devices))
	c.touch, c.returns, c.latest = make([]bool, len(t.Devices)), make([]returning, len(t.Services)), make([]int32, len(t.Services))
	c.fill.services = make([]filling, len(t.Services))
	for place := range t.Devices {
		c.devices = append(c.devices, newDevice(len(t.Networks)))
		c.restart(int32(place))
	}
	return c
}

// resetDevice sets a device to what it holds at the start: the resident networks, and no session states.
func (c *cluster) restart(place int32) {
	d, id := &c.devices[place], c.fleet.ids[place]
	d.memory, d.taken = 0, 0
	if int(id) < len(c.fleet.t.Memory) {
		d.memory = c.fleet.t.Memory[id]
	}
	for n := range d.loaded {
		if d.loaded[n] || d.loading == int32(n) {
			c.copies[n]--
		}
	}
	c.memos().emptied(place)
	clear(d.loaded)
	d.loading = -1
	if int(id) < len(c.fleet.t.Resident) {
		for _, n := range c.fleet.t.Resident[id] {
			d.loaded[n] = true
			c.copies[n]++
			d.taken += c.fleet.bytes[n]
		}
	}
	d.dirty = true
}

// touchDevice makes startTouched look at a device before the turn ends.
func (c *cluster) touchDevice(place int32) {
	if !c.touch[place] {
		c.touch[place] = true
		c.touched = append(c.touched, place)
	}
}

// isRunnable returns true if a task in a device's queue may run there: it is revealed, its inputs and its session state
// are there, and its network is loaded.
func (c *cluster) runnable(d *device, k *task) bool {
	return k.slot >= 0 && k.pending == 0 && k.arrived == k.place && !k.coming && d.loaded[c.fleet.services[k.service].network]
}

// isStuck returns true if a device runs nothing and no task in its queue may run.
func (c *cluster) stuck(d *device) bool {
	if d.busy {
		return false
	}
	for _, id := range d.queue {
		if c.runnable(d, &c.tasks[id]) {
			return false
		}
	}
	return true
}

// crowdsOut returns true if a network would not fit beside those that a device holds or plans to load. It returns false
// if the network is one of these itself.
func (c *cluster) crowded(place, network int32) bool {
	d := &c.devices[place]
	if d.loadedAt(network) >= 0 {
		return false
	}
	free := d.memory - d.taken
	for i := range d.loads {
		free -= c.fleet.bytes[d.loads[i].network]
	}
	return free < c.fleet.bytes[network]
}

// unqueueTask removes a task from the queue of its device. The task then has no place.
func (c *cluster) unqueue(id int32) {
	k := &c.tasks[id]
	c.devices[k.place].dequeue(id)
	k.state = known
	c.touchDevice(k.place)
}

// waitingTasks returns the number of tasks of a service on a device, those of the running batch included.
func (c *cluster) waiting(place, service int32) int {
	d := &c.devices[place]
	n := 0
	if d.busy && d.service == service {
		n = len(d.batch)
	}
	for _, id := range d.queue {
		if c.tasks[id].service == service {
			n++
		}
	}
	return n
}

// countTask reports to the routing, if there is one, that a task became known (delta 1) or ended (-1).
func (c *cluster) count(now int64, service int32, by int) {
	if c.route != nil {
		c.route.Count(now, service, by)
	}
}

// meanBacklog returns how far ahead devices are booked, in ns: the mean over the devices.
func (c *cluster) booked(now int64) int64 {
	sum := int64(0)
	for i := range c.devices {
		sum += max(0, c.devices[i].tail-now)
	}
	return sum / int64(len(c.devices))
}
