package workflow

import "slices"

// device is a device with its queue, what it holds, and a plan of what it will
// do.
type device struct {
	queue   []int32 // tasks, in order of their keys
	batch   []int32 // tasks that run
	service int32   // that they ask for
	busy    bool
	down    bool
	ends    int64 // when the batch ends, as expected; of a language model, the last sequence
	kv      int64 // tokens that the sequences which run will hold
	seen    int64 // when their progress was last counted

	memory  int64   // bytes; 0: nothing is loaded at run time
	taken   int64   // of networks that are there or being loaded
	loaded  []bool  // by network
	last    []int64 // by network: when it was last of use
	states  []int32 // tasks whose states of sessions are there
	loading int32   // network; -1: none
	there   int64   // when that load ends, as expected

	dirty  bool
	stale  int64    // the plan holds up to then
	plan   []period // batches to come, in order
	loads  []loadAt // that the queue asks for and that have not begun
	tail   int64    // end of all of the plan
	engine int64    // when the copy engine has done all loads
	room   int64    // bytes that are free or can be made free
	waits  []int64  // scratch: by place in the queue, when it may run; or chosen, planned
	behind []int32  // scratch: by place in the queue, the next one that is not planned
	alike  []int32  // scratch: by place in the queue, the next one of its service
}

// period is a batch to come, or what a language model does from when it begins until it
// has drained.
type period struct {
	start, end int64
	until      int64 // a task that is put behind the queue joins up to then
	kv         int64 // tokens that its sequences will hold
	work       int64
	extra      int64 // of end, for states that are computed anew
	service, n int32
	real       bool // a revealed task is in it
}

type loadAt struct {
	network int32
	end     int64
}

func newDevice(networks int) device {
	return device{loading: -1, loaded: make([]bool, networks), last: make([]int64, networks), dirty: true}
}

// enqueue puts a task into the queue by its key.
func (d *device) enqueue(tasks []task, id int32) {
	d.queue = append(d.queue, id)
	for i := len(d.queue) - 1; i > 0 && tasks[d.queue[i-1]].key > tasks[id].key; i-- {
		d.queue[i], d.queue[i-1] = d.queue[i-1], id
	}
	d.dirty = true
}

// dequeue takes a task out of the queue.
func (d *device) dequeue(id int32) {
	if i := slices.Index(d.queue, id); i >= 0 {
		d.queue = slices.Delete(d.queue, i, i+1)
	}
	d.dirty = true
}

// refresh brings plans and rows of the devices up to date that anything has
// happened to.
func (c *cluster) refresh(now int64) {
	for i := range c.devices {
		if d := &c.devices[i]; d.dirty || d.stale < now {
			c.plan(int32(i), now)
			c.write(int32(i), now)
		}
	}
}

// plan works out what a device will do by its own rule: one batch at a time, of
// the first task in its queue that may run, with all of its service that may run
// then.
func (c *cluster) plan(place int32, now int64) {
	d := &c.devices[place]
	d.dirty, d.stale = false, never
	d.plan, d.loads = d.plan[:0], d.loads[:0]
	at := now
	if d.busy {
		at = max(at, d.ends)
		d.stale = d.ends
	}
	c.planLoads(place, now)
	at = c.planBatches(d, place, now, at)
	d.tail = at
	if !d.busy && len(d.plan) > 0 {
		d.stale = d.plan[0].start
	}
	if d.loading >= 0 {
		d.stale = min(d.stale, d.there)
	}
}

// planBatches plans the batches of a queue from an instant on, and gives the end of
// the last. A task that is planned leaves the list of those that are not.
func (c *cluster) planBatches(d *device, place int32, now, at int64) int64 {
	n := int32(len(d.queue))
	c.queueUp(d, place, now)
	first, left := int32(0), n
	if q := c.sequences(); d.busy && q.is(d.service) {
		b := q.period(d, now)
		left -= q.plan(d, place, c.latest[d.service], &b)
		d.plan = append(d.plan, b)
		at = b.end
	}
	for left > 0 {
		head, before, next := n, int32(-1), never
		c.fill.reset()
		for i := first; i < n; i = d.behind[i] {
			w := d.waits[i]
			if w == planned {
				if before < 0 {
					first = d.behind[i]
				} else {
					d.behind[before] = d.behind[i]
				}
				continue
			}
			if w <= at {
				head = min(head, i)
				if !c.opt.Full {
					break
				}
				if full := c.fill.add(c, &c.tasks[d.queue[i]], place, i, at); full >= 0 {
					head = full
					break
				}
			}
			before, next = i, min(next, w)
		}
		if head == n {
			at = next
			continue
		}
		left -= c.planBatch(d, place, head, at)
		at = d.plan[len(d.plan)-1].end
	}
	return at
}

// queueUp works out when each task of a queue may run, and lists those behind each
// one: all, and those of its service.
func (c *cluster) queueUp(d *device, place int32, now int64) {
	n := int32(len(d.queue))
	d.waits, d.behind, d.alike = d.waits[:0], d.behind[:0], slices.Grow(d.alike[:0], int(n))[:n]
	if d.busy {
		c.latest[d.service] = n
	}
	for i, id := range d.queue {
		k := &c.tasks[id]
		d.waits = append(d.waits, max(c.readyAt(k, place, now), d.loadedAt(c.fleet.services[k.service].network)))
		d.behind = append(d.behind, int32(i)+1)
		c.latest[k.service] = n
	}
	for i := n - 1; i >= 0; i-- {
		s := c.tasks[d.queue[i]].service
		d.alike[i], c.latest[s] = c.latest[s], i
	}
}

// planBatch plans the batch of the task at a place of the queue, and gives its
// size.
func (c *cluster) planBatch(d *device, place, head int32, at int64) int32 {
	b := period{start: at, until: at, service: c.tasks[d.queue[head]].service}
	if q := c.sequences(); q.is(b.service) {
		b.end, b.until = at, q.until(d, b.service, at, at)
		joined := q.plan(d, place, head, &b)
		d.plan = append(d.plan, b)
		return joined
	}
	most, last := c.fleet.on(b.service, place).most, head
	for i := head; i < int32(len(d.queue)) && b.n < most; i = d.alike[i] {
		if d.waits[i] > at || d.waits[i] == planned {
			continue
		}
		k := &c.tasks[d.queue[i]]
		b.n++
		b.real = b.real || k.slot >= 0
		b.work = max(b.work, k.work)
		b.extra += c.memos().toll(k, place)
		d.waits[i], last = chosen, i
	}
	b.end = at + c.fleet.cost(b.service, place, b.n, b.work) + b.extra
	for i := head; i <= last; i = d.alike[i] {
		if d.waits[i] == chosen {
			c.tasks[d.queue[i]].end, d.waits[i] = b.end, planned
		}
	}
	d.plan = append(d.plan, b)
	return b.n
}

// chosen marks a task of a queue that is in the batch at hand, planned one that is in
// a batch before it.
const (
	chosen  = -1
	planned = -2
)

// readyAt is when all that a task reads is at a place, as expected.
func (c *cluster) readyAt(k *task, place int32, now int64) int64 {
	at := now
	if k.coming {
		at = max(at, k.there)
	}
	if k.arrived == place {
		return at
	}
	for _, in := range k.inputs {
		if in >= 0 {
			u := &c.tasks[in]
			at = max(at, u.end+c.fleet.move(u.service, max(u.place, 0), place))
		}
	}
	return at
}

// planLoads lists the loads that the queue asks for, and what room there is.
func (c *cluster) planLoads(place int32, now int64) {
	d := &c.devices[place]
	d.engine = now
	if d.loading >= 0 {
		d.engine = max(now, d.there)
	}
	d.room = never
	if d.memory == 0 {
		return
	}
	c.epoch++
	d.room = d.memory - d.taken
	for _, id := range d.queue {
		sv := &c.fleet.services[c.tasks[id].service]
		n := sv.network
		if c.marks[n] == c.epoch {
			continue
		}
		c.marks[n] = c.epoch
		if !d.loaded[n] && n != d.loading {
			d.engine += sv.by[c.fleet.kindOf[place]].load
			d.loads = append(d.loads, loadAt{n, d.engine})
			d.room -= c.fleet.bytes[n]
		}
	}
	if d.busy {
		c.marks[c.fleet.services[d.service].network] = c.epoch
	}
	for n, is := range d.loaded {
		if is && c.marks[n] != c.epoch {
			d.room += c.fleet.bytes[n]
		}
	}
	for _, id := range d.states {
		if c.memos().classOfState(id) <= aheadClass {
			d.room += c.tasks[id].memo.bytes
		}
	}
}

// loadedAt is when a network is there that is loaded, or in the queue.
func (d *device) loadedAt(network int32) int64 {
	switch {
	case d.loaded[network]:
		return 0
	case d.memory == 0:
		return never
	}
	if network == d.loading {
		return d.there
	}
	for i := range d.loads {
		if d.loads[i].network == network {
			return d.loads[i].end
		}
	}
	return -1
}

// usable is the first instant at which a task of a service finds its network.
func (c *cluster) usable(place, s int32) int64 {
	d, sv := &c.devices[place], &c.fleet.services[s]
	on := &sv.by[c.fleet.kindOf[place]]
	if on.times == nil {
		return never
	}
	if at := d.loadedAt(sv.network); at >= 0 {
		return at
	}
	if c.opt.Static && c.copies[sv.network] > 0 {
		return never
	}
	at := d.engine + on.load
	if d.room < c.fleet.bytes[sv.network] {
		at = max(at, d.tail)
	}
	return at
}

// idle is the first instant from at on at which a device can start a batch that
// takes so long without a planned one that is revealed having to wait for it.
func (d *device) idle(at, took int64) int64 {
	if d.busy {
		at = max(at, d.ends)
	}
	for i := range d.plan {
		b := &d.plan[i]
		need := took
		if !b.real {
			need = 1 // what is expected gives way
		}
		if at+need > b.start {
			at = max(at, b.end)
		} else if b.real {
			break
		}
	}
	return at
}

// write brings the rows of a place up to date.
func (c *cluster) write(place int32, now int64) {
	d, f := &c.devices[place], c.fleet
	if d.down {
		for s := range f.services {
			c.rows.set(int32(s), place, never, 0)
		}
		return
	}
	kind := f.kindOf[place]
	for s := range f.services {
		sv := &f.services[s]
		on := &sv.by[kind]
		if on.times == nil {
			c.rows.set(int32(s), place, never, 0)
			continue
		}
		took := on.times[0]
		free := d.idle(now, took)
		if !d.loaded[sv.network] {
			if free = c.usable(place, int32(s)); free < never {
				free = d.idle(max(free, now), took)
			}
		}
		c.rows.set(int32(s), place, free, took)
	}
	for i := len(d.plan) - 1; i >= 0; i-- {
		b := &d.plan[i]
		on := &f.services[b.service].by[kind]
		switch q := c.sequences(); {
		case !q.fits(b.service, place, b.n, b.kv, unit):
		case q.is(b.service):
			if b.until >= now {
				c.rows.set(b.service, place, max(b.start, now), on.times[b.n])
			}
		case b.start >= now:
			c.rows.setJoin(b.service, place, b.start, on.times[b.n]+b.extra)
		}
	}
}
