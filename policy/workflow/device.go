package workflow

import "slices"

// device is a device with its queue, what its memory holds, and a plan of what it will do.
type device struct {
	queue   []int32 // waiting tasks, in order of their keys
	batch   []int32 // running tasks
	service int32   // service of the running tasks
	busy    bool
	down    bool
	ends    int64 // expected end of the batch, or of the last sequence of a language model
	kv      int64 // KV tokens that the running sequences will hold
	seen    int64 // when the progress of the sequences was last counted

	memory  int64   // bytes; 0 if no network is loaded at run time
	taken   int64   // bytes of networks that are loaded or being loaded, and of session states
	loaded  []bool  // by network
	last    []int64 // by network: when a batch last used it
	states  []int32 // tasks whose session states are on the device
	loading int32   // network that is being loaded; -1 if none
	there   int64   // expected end of that load

	dirty  bool     // the plan has to be computed anew
	stale  int64    // the plan holds up to then
	plan   []period // planned batches, in order
	loads  []loadAt // loads that the queue needs and that have not begun
	tail   int64    // end of the whole plan
	engine int64    // when the copy engine has done all loads
	room   int64    // bytes that are free or can be freed
	waits  []int64  // scratch, by queue position: when the task may run, or positionChosen or positionPlanned
	behind []int32  // scratch, by queue position: the next one that is not planned
	alike  []int32  // scratch, by queue position: the next one of the same service
}

// plannedBatch is a batch that a device will run. For a language model it is the time from its first sequence until it
// has drained.
type period struct {
	start, end int64
	until      int64 // a task appended to the queue can join up to then
	kv         int64 // KV tokens that its sequences will hold
	work       int64 // largest work of its tasks
	extra      int64 // part of the time in which session states are recomputed
	service, n int32 // service and number of tasks
	real       bool  // it holds a revealed task
}

// plannedLoad is a load that the queue needs, with its expected end.
type loadAt struct {
	network int32
	end     int64
}

func newDevice(networks int) device {
	return device{loading: -1, loaded: make([]bool, networks), last: make([]int64, networks), dirty: true}
}

// enqueue inserts a task into the queue by its key, behind tasks with the same key.
func (d *device) enqueue(tasks []task, id int32) {
	d.queue = append(d.queue, id)
	for i := len(d.queue) - 1; i > 0 && tasks[d.queue[i-1]].key > tasks[id].key; i-- {
		d.queue[i], d.queue[i-1] = d.queue[i-1], id
	}
	d.dirty = true
}

// dequeue removes a task from the queue, if it is there.
func (d *device) dequeue(id int32) {
	if i := slices.Index(d.queue, id); i >= 0 {
		d.queue = slices.Delete(d.queue, i, i+1)
	}
	d.dirty = true
}

// refreshPlans computes the plan and the end table anew for devices whose plan has changed or is out of date.
func (c *cluster) refresh(now int64) {
	for i := range c.devices {
		if d := &c.devices[i]; d.dirty || d.stale < now {
			c.plan(int32(i), now)
			c.write(int32(i), now)
		}
	}
}

// planDevice computes the plan of a device by playing its own rule forward: one batch at a time, of the first task in
// the queue that may run then, with all tasks of the same service that may run then.
func (c *cluster) plan(place int32, now int64) {
	d := &c.devices[place]
	d.dirty, d.stale = false, never
	d.plan, d.loads = d.plan[:0], d.loads[:0]

	// The plan begins when the running batch ends.
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

// planBatches plans the batches of a queue from an instant on, and returns the end of the last one. Positions that are
// planned are unlinked from the list that nextUnplanned holds.
func (c *cluster) planBatches(d *device, place int32, now, at int64) int64 {
	n := int32(len(d.queue))
	c.queueUp(d, place, now)
	first, left := int32(0), n

	// Tasks join the language model that runs already.
	if q := c.sequences(); d.busy && q.is(d.service) {
		b := q.period(d, now)
		left -= q.plan(d, place, c.latest[d.service], &b)
		d.plan = append(d.plan, b)
		at = b.end
	}
	for left > 0 {
		// Find the head of the next batch: the first position that is ready, or the first full batch. Otherwise, when
		// the first position becomes ready.
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

		// Nothing is ready yet, so the device idles until something is.
		if head == n {
			at = next
			continue
		}
		left -= c.planBatch(d, place, head, at)
		at = d.plan[len(d.plan)-1].end
	}
	return at
}

// linkQueue computes when each task of a queue may run, and links every position to the next one in the queue and to the
// next one of the same service.
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

// planBatch plans one batch, headed by the task at a position of the queue, and returns its size.
func (c *cluster) planBatch(d *device, place, head int32, at int64) int32 {
	b := period{start: at, until: at, service: c.tasks[d.queue[head]].service}
	if q := c.sequences(); q.is(b.service) {
		b.end, b.until = at, q.until(d, b.service, at, at)
		joined := q.plan(d, place, head, &b)
		d.plan = append(d.plan, b)
		return joined
	}

	// Choose tasks of the service that are ready, up to the largest batch.
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

	// Now the end of the batch is known; write it into its tasks.
	b.end = at + c.fleet.cost(b.service, place, b.n, b.work) + b.extra
	for i := head; i <= last; i = d.alike[i] {
		if d.waits[i] == chosen {
			c.tasks[d.queue[i]].end, d.waits[i] = b.end, planned
		}
	}
	d.plan = append(d.plan, b)
	return b.n
}

// positionChosen marks a queue position that is in the batch under construction, positionPlanned one that is in an
// earlier batch.
const (
	chosen  = -1
	planned = -2
)

// inputsReadyAt returns when all inputs of a task, and the session state that it continues, are at a place, as expected.
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

// planLoads lists the loads that a device's queue needs, and computes the bytes that are free or can be freed.
func (c *cluster) planLoads(place int32, now int64) {
	d := &c.devices[place]
	d.engine = now
	if d.loading >= 0 {
		d.engine = max(now, d.there)
	}

	// Without a memory size nothing is loaded, and memory is no limit.
	d.room = never
	if d.memory == 0 {
		return
	}

	// Plan one load for every network that the queue needs and the device lacks.
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

	// Networks that neither the queue nor the running batch needs can go, and so can states that no task needs
	// soon.
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

// networkReadyAt returns when a network is usable on a device: 0 if it is loaded, or the end of its load. If the device
// neither has nor plans it, it returns -1; if the device never loads anything, farFuture.
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

// networkUsableAt returns the first instant at which a task of a service, placed now, finds its network on a device. If
// the device cannot run the service, or must not load its network (Options.StaticNetworks), it returns farFuture.
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

// firstIdle returns the first instant, not before a given one, at which a device can start a batch of a given duration
// without delaying a planned batch that holds a revealed task. Batches of expected tasks give way.
func (d *device) idle(at, took int64) int64 {
	if d.busy {
		at = max(at, d.ends)
	}
	for i := range d.plan {
		b := &d.plan[i]
		need := took
		if !b.real {
			need = 1 // expected tasks give way
		}
		if at+need > b.start {
			at = max(at, b.end)
		} else if b.real {
			break
		}
	}
	return at
}

// writeEndTable writes the entries of a place into the end table.
func (c *cluster) write(place int32, now int64) {
	d, f := &c.devices[place], c.fleet
	if d.down {
		for s := range f.services {
			c.rows.set(int32(s), place, never, 0)
		}
		return
	}

	// First the entries of a batch of one, in the first gap of the plan.
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

	// Then the planned batches that a task can join. The loop runs backwards, so the earliest one of a service
	// stays.
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
