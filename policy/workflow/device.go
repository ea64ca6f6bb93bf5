package workflow

import "slices"

// device is a device with its queue, what its memory holds, and a plan of what it will do.
type device struct {
	queue             []int32 // waiting tasks, in order of their keys
	batch             []int32 // running tasks
	service           int32   // service of the running tasks
	busy              bool
	down              bool
	batchEndsAt       int64 // expected end of the batch, or of the last sequence of a language model
	kvTokens          int64 // KV tokens that the running sequences will hold
	progressCountedAt int64 // when the progress of the sequences was last counted

	memoryBytes   int64   // bytes; 0 if no network is loaded at run time
	usedBytes     int64   // bytes of networks that are loaded or being loaded, and of session states
	loaded        []bool  // by network
	lastUsedAt    []int64 // by network: when a batch last used it
	sessionStates []int32 // tasks whose session states are on the device
	loading       int32   // network that is being loaded; -1 if none
	loadEndsAt    int64   // expected end of that load

	dirty            bool           // the plan has to be computed anew
	planValidUntil   int64          // the plan holds up to then
	plannedBatches   []plannedBatch // planned batches, in order
	plannedLoads     []plannedLoad  // loads that the queue needs and that have not begun
	planEnd          int64          // end of the whole plan
	copyEngineFreeAt int64          // when the copy engine has done all loads
	availableBytes   int64          // bytes that are free or can be freed
	readyTimes       []int64        // scratch, by queue position: when the task may run, or positionChosen or positionPlanned
	nextUnplanned    []int32        // scratch, by queue position: the next one that is not planned
	nextOfService    []int32        // scratch, by queue position: the next one of the same service
}

// plannedBatch is a batch that a device will run. For a language model it is the time from its first sequence until it
// has drained.
type plannedBatch struct {
	start, end    int64
	joinUntil     int64 // a task appended to the queue can join up to then
	kvTokens      int64 // KV tokens that its sequences will hold
	work          int64 // largest work of its tasks
	recomputeTime int64 // part of the time in which session states are recomputed
	service, size int32 // service and number of tasks
	hasRevealed   bool  // it holds a revealed task
}

// plannedLoad is a load that the queue needs, with its expected end.
type plannedLoad struct {
	network int32
	end     int64
}

func newDevice(networks int) device {
	return device{loading: -1, loaded: make([]bool, networks), lastUsedAt: make([]int64, networks), dirty: true}
}

// enqueue inserts a task into the queue by its key, behind tasks with the same key.
func (d *device) enqueue(tasks []task, id int32) {
	d.queue = append(d.queue, id)
	for i := len(d.queue) - 1; i > 0 && tasks[d.queue[i-1]].orderKey > tasks[id].orderKey; i-- {
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
func (c *cluster) refreshPlans(now int64) {
	for i := range c.devices {
		if d := &c.devices[i]; d.dirty || d.planValidUntil < now {
			c.planDevice(int32(i), now)
			c.writeEndTable(int32(i), now)
		}
	}
}

// planDevice computes the plan of a device by playing its own rule forward: one batch at a time, of the first task in
// the queue that may run then, with all tasks of the same service that may run then.
func (c *cluster) planDevice(place int32, now int64) {
	d := &c.devices[place]
	d.dirty, d.planValidUntil = false, farFuture
	d.plannedBatches, d.plannedLoads = d.plannedBatches[:0], d.plannedLoads[:0]

	// The plan begins when the running batch ends.
	freeAt := now
	if d.busy {
		freeAt = max(freeAt, d.batchEndsAt)
		d.planValidUntil = d.batchEndsAt
	}
	c.planLoads(place, now)
	freeAt = c.planBatches(d, place, now, freeAt)
	d.planEnd = freeAt
	if !d.busy && len(d.plannedBatches) > 0 {
		d.planValidUntil = d.plannedBatches[0].start
	}
	if d.loading >= 0 {
		d.planValidUntil = min(d.planValidUntil, d.loadEndsAt)
	}
}

// planBatches plans the batches of a queue from an instant on, and returns the end of the last one. Positions that are
// planned are unlinked from the list that nextUnplanned holds.
func (c *cluster) planBatches(d *device, place int32, now, freeAt int64) int64 {
	n := int32(len(d.queue))
	c.linkQueue(d, place, now)
	firstUnplanned, unplanned := int32(0), n

	// Tasks join the language model that runs already.
	if q := c.languageModels(); d.busy && q.isLanguageModel(d.service) {
		b := q.currentPeriod(d, now)
		unplanned -= q.planJoins(d, place, c.latestPosition[d.service], &b)
		d.plannedBatches = append(d.plannedBatches, b)
		freeAt = b.end
	}
	for unplanned > 0 {
		// Find the head of the next batch: the first position that is ready, or the first full batch. Otherwise, when
		// the first position becomes ready.
		headPosition, previous, nextReady := n, int32(-1), farFuture
		c.fullBatch.reset()
		for i := firstUnplanned; i < n; i = d.nextUnplanned[i] {
			readyAt := d.readyTimes[i]
			if readyAt == positionPlanned {
				if previous < 0 {
					firstUnplanned = d.nextUnplanned[i]
				} else {
					d.nextUnplanned[previous] = d.nextUnplanned[i]
				}
				continue
			}
			if readyAt <= freeAt {
				headPosition = min(headPosition, i)
				if !c.options.FullBatchFirst {
					break
				}
				if fullHead := c.fullBatch.addTask(c, &c.tasks[d.queue[i]], place, i, freeAt); fullHead >= 0 {
					headPosition = fullHead
					break
				}
			}
			previous, nextReady = i, min(nextReady, readyAt)
		}

		// Nothing is ready yet, so the device idles until something is.
		if headPosition == n {
			freeAt = nextReady
			continue
		}
		unplanned -= c.planBatch(d, place, headPosition, freeAt)
		freeAt = d.plannedBatches[len(d.plannedBatches)-1].end
	}
	return freeAt
}

// linkQueue computes when each task of a queue may run, and links every position to the next one in the queue and to the
// next one of the same service.
func (c *cluster) linkQueue(d *device, place int32, now int64) {
	n := int32(len(d.queue))
	d.readyTimes, d.nextUnplanned, d.nextOfService = d.readyTimes[:0], d.nextUnplanned[:0], slices.Grow(d.nextOfService[:0], int(n))[:n]
	if d.busy {
		c.latestPosition[d.service] = n
	}
	for i, id := range d.queue {
		k := &c.tasks[id]
		d.readyTimes = append(d.readyTimes, max(c.inputsReadyAt(k, place, now), d.networkReadyAt(c.tables.services[k.service].network)))
		d.nextUnplanned = append(d.nextUnplanned, int32(i)+1)
		c.latestPosition[k.service] = n
	}
	for i := n - 1; i >= 0; i-- {
		s := c.tasks[d.queue[i]].service
		d.nextOfService[i], c.latestPosition[s] = c.latestPosition[s], i
	}
}

// planBatch plans one batch, headed by the task at a position of the queue, and returns its size.
func (c *cluster) planBatch(d *device, place, headPosition int32, startAt int64) int32 {
	b := plannedBatch{start: startAt, joinUntil: startAt, service: c.tasks[d.queue[headPosition]].service}
	if q := c.languageModels(); q.isLanguageModel(b.service) {
		b.end, b.joinUntil = startAt, q.lastJoin(d, b.service, startAt, startAt)
		joinedTasks := q.planJoins(d, place, headPosition, &b)
		d.plannedBatches = append(d.plannedBatches, b)
		return joinedTasks
	}

	// Choose tasks of the service that are ready, up to the largest batch.
	maxBatch, lastChosen := c.tables.serviceOn(b.service, place).maxBatch, headPosition
	for i := headPosition; i < int32(len(d.queue)) && b.size < maxBatch; i = d.nextOfService[i] {
		if d.readyTimes[i] > startAt || d.readyTimes[i] == positionPlanned {
			continue
		}
		k := &c.tasks[d.queue[i]]
		b.size++
		b.hasRevealed = b.hasRevealed || k.slot >= 0
		b.work = max(b.work, k.work)
		b.recomputeTime += c.stateStore().recomputeTime(k, place)
		d.readyTimes[i], lastChosen = positionChosen, i
	}

	// Now the end of the batch is known; write it into its tasks.
	b.end = startAt + c.tables.batchTime(b.service, place, b.size, b.work) + b.recomputeTime
	for i := headPosition; i <= lastChosen; i = d.nextOfService[i] {
		if d.readyTimes[i] == positionChosen {
			c.tasks[d.queue[i]].endsAt, d.readyTimes[i] = b.end, positionPlanned
		}
	}
	d.plannedBatches = append(d.plannedBatches, b)
	return b.size
}

// positionChosen marks a queue position that is in the batch under construction, positionPlanned one that is in an
// earlier batch.
const (
	positionChosen  = -1
	positionPlanned = -2
)

// inputsReadyAt returns when all inputs of a task, and the session state that it continues, are at a place, as expected.
func (c *cluster) inputsReadyAt(k *task, place int32, now int64) int64 {
	readyAt := now
	if k.stateInTransit {
		readyAt = max(readyAt, k.stateArrivesAt)
	}
	if k.inputsAt == place {
		return readyAt
	}
	for _, in := range k.inputs {
		if in >= 0 {
			inputTask := &c.tasks[in]
			readyAt = max(readyAt, inputTask.endsAt+c.tables.transferTime(inputTask.service, max(inputTask.place, 0), place))
		}
	}
	return readyAt
}

// planLoads lists the loads that a device's queue needs, and computes the bytes that are free or can be freed.
func (c *cluster) planLoads(place int32, now int64) {
	d := &c.devices[place]
	d.copyEngineFreeAt = now
	if d.loading >= 0 {
		d.copyEngineFreeAt = max(now, d.loadEndsAt)
	}

	// Without a memory size nothing is loaded, and memory is no limit.
	d.availableBytes = farFuture
	if d.memoryBytes == 0 {
		return
	}

	// Plan one load for every network that the queue needs and the device lacks.
	c.markEpoch++
	d.availableBytes = d.memoryBytes - d.usedBytes
	for _, id := range d.queue {
		sv := &c.tables.services[c.tasks[id].service]
		n := sv.network
		if c.networkEpoch[n] == c.markEpoch {
			continue
		}
		c.networkEpoch[n] = c.markEpoch
		if !d.loaded[n] && n != d.loading {
			d.copyEngineFreeAt += sv.onKinds[c.tables.kindOf[place]].loadTime
			d.plannedLoads = append(d.plannedLoads, plannedLoad{n, d.copyEngineFreeAt})
			d.availableBytes -= c.tables.bytes[n]
		}
	}
	if d.busy {
		c.networkEpoch[c.tables.services[d.service].network] = c.markEpoch
	}

	// Networks that neither the queue nor the running batch needs can go, and so can states that no task needs
	// soon.
	for n, isLoaded := range d.loaded {
		if isLoaded && c.networkEpoch[n] != c.markEpoch {
			d.availableBytes += c.tables.bytes[n]
		}
	}
	for _, id := range d.sessionStates {
		if c.stateStore().stateClass(id) <= expectedClass {
			d.availableBytes += c.tasks[id].session.bytes
		}
	}
}

// networkReadyAt returns when a network is usable on a device: 0 if it is loaded, or the end of its load. If the device
// neither has nor plans it, it returns -1; if the device never loads anything, farFuture.
func (d *device) networkReadyAt(network int32) int64 {
	switch {
	case d.loaded[network]:
		return 0
	case d.memoryBytes == 0:
		return farFuture
	}
	if network == d.loading {
		return d.loadEndsAt
	}
	for i := range d.plannedLoads {
		if d.plannedLoads[i].network == network {
			return d.plannedLoads[i].end
		}
	}
	return -1
}

// networkUsableAt returns the first instant at which a task of a service, placed now, finds its network on a device. If
// the device cannot run the service, or must not load its network (Options.StaticNetworks), it returns farFuture.
func (c *cluster) networkUsableAt(place, service int32) int64 {
	d, sv := &c.devices[place], &c.tables.services[service]
	onKind := &sv.onKinds[c.tables.kindOf[place]]
	if onKind.times == nil {
		return farFuture
	}
	if usableAt := d.networkReadyAt(sv.network); usableAt >= 0 {
		return usableAt
	}
	if c.options.StaticNetworks && c.copyCount[sv.network] > 0 {
		return farFuture
	}
	usableAt := d.copyEngineFreeAt + onKind.loadTime
	if d.availableBytes < c.tables.bytes[sv.network] {
		usableAt = max(usableAt, d.planEnd)
	}
	return usableAt
}

// firstIdle returns the first instant, not before a given one, at which a device can start a batch of a given duration
// without delaying a planned batch that holds a revealed task. Batches of expected tasks give way.
func (d *device) firstIdle(idleAt, duration int64) int64 {
	if d.busy {
		idleAt = max(idleAt, d.batchEndsAt)
	}
	for i := range d.plannedBatches {
		b := &d.plannedBatches[i]
		needed := duration
		if !b.hasRevealed {
			needed = 1 // expected tasks give way
		}
		if idleAt+needed > b.start {
			idleAt = max(idleAt, b.end)
		} else if b.hasRevealed {
			break
		}
	}
	return idleAt
}

// writeEndTable writes the entries of a place into the end table.
func (c *cluster) writeEndTable(place int32, now int64) {
	d, f := &c.devices[place], c.tables
	if d.down {
		for s := range f.services {
			c.endTable.setSolo(int32(s), place, farFuture, 0)
		}
		return
	}

	// First the entries of a batch of one, in the first gap of the plan.
	kind := f.kindOf[place]
	for s := range f.services {
		sv := &f.services[s]
		onKind := &sv.onKinds[kind]
		if onKind.times == nil {
			c.endTable.setSolo(int32(s), place, farFuture, 0)
			continue
		}
		soloTime := onKind.times[0]
		idleAt := d.firstIdle(now, soloTime)
		if !d.loaded[sv.network] {
			if idleAt = c.networkUsableAt(place, int32(s)); idleAt < farFuture {
				idleAt = d.firstIdle(max(idleAt, now), soloTime)
			}
		}
		c.endTable.setSolo(int32(s), place, idleAt, soloTime)
	}

	// Then the planned batches that a task can join. The loop runs backwards, so the earliest one of a service
	// stays.
	for i := len(d.plannedBatches) - 1; i >= 0; i-- {
		b := &d.plannedBatches[i]
		onKind := &f.services[b.service].onKinds[kind]
		switch q := c.languageModels(); {
		case !q.fitsOneMore(b.service, place, b.size, b.kvTokens, usualWork):
		case q.isLanguageModel(b.service):
			if b.joinUntil >= now {
				c.endTable.setSolo(b.service, place, max(b.start, now), onKind.times[b.size])
			}
		case b.start >= now:
			c.endTable.setJoin(b.service, place, b.start, onKind.times[b.size]+b.recomputeTime)
		}
	}
}
