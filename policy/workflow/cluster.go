package workflow

import "inferplan/policy"

// cluster is what all parts of the policy act on: requests and their tasks, the
// devices with what they hold, and their plans.
type cluster struct {
	book
	opt     Options
	fleet   *fleet
	rows    rows
	devices []device
	copies  []int32 // by network: devices that have it or load it
	demand  demand
	returns []returning // by service
	running int         // devices that run a batch
	touched []int32     // devices that something happened to
	touch   []bool
	epoch   int32
	marks   []int32 // by network: epoch
	latest  []int32 // scratch of a plan: by service
	fill    fill
	route   Routing // nil: the search places tasks

	inSlot    []int32 // sequence by batch slot, from the number of devices on
	freeSlots []int32
}

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

// restart gives a device what it has from the start.
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

// touchDevice has a device looked at before the turn ends.
func (c *cluster) touchDevice(place int32) {
	if !c.touch[place] {
		c.touch[place] = true
		c.touched = append(c.touched, place)
	}
}

// runnable tells whether a task in a device's queue may run there.
func (c *cluster) runnable(d *device, k *task) bool {
	return k.slot >= 0 && k.pending == 0 && k.arrived == k.place && !k.coming && d.loaded[c.fleet.services[k.service].network]
}

// stuck tells whether a device neither runs nor could run anything.
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

// crowded tells whether a network that nothing has asked for yet would take the
// room of others on a device.
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

// unqueue takes a task out of its device's queue.
func (c *cluster) unqueue(id int32) {
	k := &c.tasks[id]
	c.devices[k.place].dequeue(id)
	k.state = known
	c.touchDevice(k.place)
}

// waiting is the number of tasks of a service on a device.
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

// count tells the routing that a task became known or ended.
func (c *cluster) count(now int64, service int32, by int) {
	if c.route != nil {
		c.route.Count(now, service, by)
	}
}

// booked is how far devices are booked ahead, on average.
func (c *cluster) booked(now int64) int64 {
	sum := int64(0)
	for i := range c.devices {
		sum += max(0, c.devices[i].tail-now)
	}
	return sum / int64(len(c.devices))
}
