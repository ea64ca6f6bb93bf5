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

// devicePlanner computes the plans of devices, and the end table that follows from them.
type devicePlanner struct {
	cluster        *cluster
	book           *taskTable
	tables         *deviceTables
	states         *stateStore
	endTable       endTable // when a task would end, by service and place
	fullBatch      fullBatchFinder
	markEpoch      int32   // current mark of networkEpoch
	networkEpoch   []int32 // by network: the epoch in which it was last seen
	latestPosition []int32 // scratch of a plan: latest queue position by service
}

// newDevicePlanner returns a planner for the devices of a cluster.
func newDevicePlanner(c *cluster, states *stateStore) *devicePlanner {
	services, networks := len(c.tables.services), len(c.tables.bytes)
	return &devicePlanner{cluster: c, book: c.book, tables: c.tables, states: states, endTable: newEndTable(services, len(c.devices)), fullBatch: newFullBatchFinder(services),
		networkEpoch: make([]int32, networks), latestPosition: make([]int32, services)}
}

// refreshPlans computes the plan and the end table anew for devices whose plan has changed or is out of date.
func (p *devicePlanner) refreshPlans(now int64) {
	for i := range p.cluster.devices {
		if d := &p.cluster.devices[i]; d.dirty || d.planValidUntil < now {
			p.planDevice(int32(i), now)
			p.writeEndTable(int32(i), now)
		}
	}
}

// planDevice computes the plan of a device by playing its own rule forward: one batch at a time, of the first task
// in the queue that may run then, with all tasks of the same service that may run then. The plan is valid until the
// next batch or load ends or starts.
func (p *devicePlanner) planDevice(place int32, now int64) {
	d := &p.cluster.devices[place]
	d.dirty, d.planValidUntil = false, farFuture
	d.plannedBatches, d.plannedLoads = d.plannedBatches[:0], d.plannedLoads[:0]

	// The plan begins when the running batch ends.
	freeAt := now
	if d.busy {
		freeAt = max(freeAt, d.batchEndsAt)
		d.planValidUntil = d.batchEndsAt
	}
	p.planLoads(place, now)
	freeAt = p.planBatches(d, place, now, freeAt)
	d.planEnd = freeAt
	if !d.busy && len(d.plannedBatches) > 0 {
		d.planValidUntil = d.plannedBatches[0].start
	}
	if d.loading >= 0 {
		d.planValidUntil = min(d.planValidUntil, d.loadEndsAt)
	}
}

// planBatches plans the batches of a device's queue from freeAt on, and returns the end of the last one. freeAt is
// when the running batch ends. Positions that are planned are unlinked from the list that nextUnplanned holds, so
// that the rest is found without passing them again.
func (p *devicePlanner) planBatches(d *device, place int32, now, freeAt int64) int64 {
	n := int32(len(d.queue))
	p.linkQueue(d, place, now)
	firstUnplanned, unplanned := int32(0), n

	// Tasks join the language model that runs already.
	if d.busy && p.tables.isLanguageModel(d.service) {
		b := p.currentPeriod(d, now)
		unplanned -= p.planJoins(d, place, p.latestPosition[d.service], &b)
		d.plannedBatches = append(d.plannedBatches, b)
		freeAt = b.end
	}
	for unplanned > 0 {
		headPosition, nextReady := p.nextHead(d, place, &firstUnplanned, freeAt)
		if headPosition < 0 {
			freeAt = nextReady // nothing is ready yet, so the device idles until something is
			continue
		}
		unplanned -= p.planBatch(d, place, headPosition, freeAt)
		freeAt = d.plannedBatches[len(d.plannedBatches)-1].end
	}
	return freeAt
}

// nextHead returns the queue position at which the batch that a device starts at startAt begins: the first position
// that is ready, or with FullBatchFirst the first full batch, if that may go first. If no position is ready, it
// returns -1, and when the first one is. Positions that are planned already are unlinked.
func (p *devicePlanner) nextHead(d *device, place int32, firstUnplanned *int32, startAt int64) (headPosition int32, nextReady int64) {
	headPosition, nextReady = -1, farFuture
	previous := int32(-1)
	p.fullBatch.reset()
	for i := *firstUnplanned; i < int32(len(d.queue)); i = d.nextUnplanned[i] {
		readyAt := d.readyTimes[i]
		if readyAt == positionPlanned && previous < 0 {
			*firstUnplanned = d.nextUnplanned[i]
			continue
		}
		if readyAt == positionPlanned {
			d.nextUnplanned[previous] = d.nextUnplanned[i]
			continue
		}
		previous, nextReady = i, min(nextReady, readyAt)
		if readyAt > startAt {
			continue
		}

		// It is ready. A full batch behind it may go first.
		if headPosition < 0 {
			headPosition = i
		}
		if !p.cluster.options.FullBatchFirst {
			break
		}
		if fullHead := p.fullBatch.addTask(p.tables, &p.book.tasks[d.queue[i]], place, i, startAt); fullHead >= 0 {
			return fullHead, nextReady
		}
	}
	return headPosition, nextReady
}

// linkQueue prepares the planning of a device's queue: it computes when each task may run (inputs and network are
// there), and links every position to the next one in the queue and to the next one of the same service. Position
// n, behind the last, ends the lists.
func (p *devicePlanner) linkQueue(d *device, place int32, now int64) {
	n := int32(len(d.queue))
	d.readyTimes, d.nextUnplanned, d.nextOfService = d.readyTimes[:0], d.nextUnplanned[:0], slices.Grow(d.nextOfService[:0], int(n))[:n]
	if d.busy {
		p.latestPosition[d.service] = n
	}
	for i, id := range d.queue {
		k := &p.book.tasks[id]
		d.readyTimes = append(d.readyTimes, max(p.inputsReadyAt(k, place, now), d.networkReadyAt(p.tables.services[k.service].network)))
		d.nextUnplanned = append(d.nextUnplanned, int32(i)+1)
		p.latestPosition[k.service] = n
	}
	for i := n - 1; i >= 0; i-- {
		s := p.book.tasks[d.queue[i]].service
		d.nextOfService[i], p.latestPosition[s] = p.latestPosition[s], i
	}
}

// planBatch plans one batch of a device that starts at startAt, headed by the task at a position of the queue: all
// ready tasks of its service, up to the largest batch. It writes the expected end into the tasks, and returns the
// size.
func (p *devicePlanner) planBatch(d *device, place, headPosition int32, startAt int64) int32 {
	b := plannedBatch{start: startAt, joinUntil: startAt, service: p.book.tasks[d.queue[headPosition]].service}
	if p.tables.isLanguageModel(b.service) {
		b.end, b.joinUntil = startAt, p.lastJoin(d, b.service, startAt, startAt)
		joinedTasks := p.planJoins(d, place, headPosition, &b)
		d.plannedBatches = append(d.plannedBatches, b)
		return joinedTasks
	}

	// Choose tasks of the service that are ready, up to the largest batch.
	maxBatch, lastChosen := p.tables.serviceOn(b.service, place).maxBatch, headPosition
	for i := headPosition; i < int32(len(d.queue)) && b.size < maxBatch; i = d.nextOfService[i] {
		if d.readyTimes[i] > startAt || d.readyTimes[i] == positionPlanned {
			continue
		}
		k := &p.book.tasks[d.queue[i]]
		b.size++
		b.hasRevealed = b.hasRevealed || k.slot >= 0
		b.work = max(b.work, k.work)
		b.recomputeTime += p.states.recomputeTime(k, place)
		d.readyTimes[i], lastChosen = positionChosen, i
	}

	// Now the end of the batch is known; write it into its tasks.
	b.end = startAt + p.tables.batchTime(b.service, place, b.size, b.work) + b.recomputeTime
	for i := headPosition; i <= lastChosen; i = d.nextOfService[i] {
		if d.readyTimes[i] == positionChosen {
			p.book.tasks[d.queue[i]].endsAt, d.readyTimes[i] = b.end, positionPlanned
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

// inputsReadyAt returns when all inputs of a task are at a place (device), as expected, with the session state that
// it continues if that is on its way. An input arrives when its task has ended and the transfer is over.
func (p *devicePlanner) inputsReadyAt(k *task, place int32, now int64) int64 {
	readyAt := now
	if k.stateInTransit {
		readyAt = max(readyAt, k.stateArrivesAt)
	}
	if k.inputsAt == place {
		return readyAt
	}
	for _, in := range k.inputs {
		if in >= 0 {
			inputTask := &p.book.tasks[in]
			readyAt = max(readyAt, inputTask.endsAt+p.tables.transferTime(inputTask.service, max(inputTask.place, 0), place))
		}
	}
	return readyAt
}

// planLoads lists the loads of networks that a device's queue needs, one after the other on its copy engine, and
// computes the bytes of memory that are free or can be freed. A network is marked with the epoch of this call, so
// that it is planned once.
func (p *devicePlanner) planLoads(place int32, now int64) {
	d := &p.cluster.devices[place]
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
	p.markEpoch++
	d.availableBytes = d.memoryBytes - d.usedBytes
	for _, id := range d.queue {
		sv := &p.tables.services[p.book.tasks[id].service]
		n := sv.network
		if p.networkEpoch[n] == p.markEpoch {
			continue
		}
		p.networkEpoch[n] = p.markEpoch
		if !d.loaded[n] && n != d.loading {
			d.copyEngineFreeAt += sv.onKinds[p.tables.kindOf[place]].loadTime
			d.plannedLoads = append(d.plannedLoads, plannedLoad{n, d.copyEngineFreeAt})
			d.availableBytes -= p.tables.bytes[n]
		}
	}
	if d.busy {
		p.networkEpoch[p.tables.services[d.service].network] = p.markEpoch
	}

	// Networks that neither the queue nor the running batch needs can go, and so can states that no task needs
	// soon.
	for n, isLoaded := range d.loaded {
		if isLoaded && p.networkEpoch[n] != p.markEpoch {
			d.availableBytes += p.tables.bytes[n]
		}
	}
	for _, id := range d.sessionStates {
		if p.states.stateClass(id) <= expectedClass {
			d.availableBytes += p.book.tasks[id].session.bytes
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
func (p *devicePlanner) networkUsableAt(place, service int32) int64 {
	d, sv := &p.cluster.devices[place], &p.tables.services[service]
	onKind := &sv.onKinds[p.tables.kindOf[place]]
	if onKind.times == nil {
		return farFuture
	}
	if usableAt := d.networkReadyAt(sv.network); usableAt >= 0 {
		return usableAt
	}
	if p.cluster.options.StaticNetworks && p.cluster.copyCount[sv.network] > 0 {
		return farFuture
	}
	usableAt := d.copyEngineFreeAt + onKind.loadTime
	if d.availableBytes < p.tables.bytes[sv.network] {
		usableAt = max(usableAt, d.planEnd)
	}
	return usableAt
}

// firstIdle returns the first instant, not before a given one, at which a device can start a batch of a given
// duration without delaying a planned batch that holds a revealed task. Batches of expected tasks give way. A busy
// device is idle when its running batch ends at the earliest.
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

// writeEndTable writes a device's entries into the end table: when a task of each service would end there, in a
// batch of its own in the first gap of the plan, or in a planned batch that it can join. It is called when a
// device's plan has changed. A device that is down never ends anything (farFuture).
func (p *devicePlanner) writeEndTable(place int32, now int64) {
	d, f := &p.cluster.devices[place], p.tables
	if d.down {
		for s := range f.services {
			p.endTable.setSolo(int32(s), place, farFuture, 0)
		}
		return
	}

	// First the entries of a batch of one, in the first gap of the plan.
	kind := f.kindOf[place]
	for s := range f.services {
		sv := &f.services[s]
		onKind := &sv.onKinds[kind]
		if onKind.times == nil {
			p.endTable.setSolo(int32(s), place, farFuture, 0)
			continue
		}
		soloTime := onKind.times[0]
		idleAt := d.firstIdle(now, soloTime)
		if !d.loaded[sv.network] {
			if idleAt = p.networkUsableAt(place, int32(s)); idleAt < farFuture {
				idleAt = d.firstIdle(max(idleAt, now), soloTime)
			}
		}
		p.endTable.setSolo(int32(s), place, idleAt, soloTime)
	}

	// Then the planned batches that a task can join. The loop runs backwards, so the earliest one of a service
	// stays.
	for i := len(d.plannedBatches) - 1; i >= 0; i-- {
		b := &d.plannedBatches[i]
		onKind := &f.services[b.service].onKinds[kind]
		switch {
		case !f.fitsOneMore(b.service, place, b.size, b.kvTokens, usualWork):
		case f.isLanguageModel(b.service):
			if b.joinUntil >= now {
				p.endTable.setSolo(b.service, place, max(b.start, now), onKind.times[b.size])
			}
		case b.start >= now:
			p.endTable.setJoin(b.service, place, b.start, onKind.times[b.size]+b.recomputeTime)
		}
	}
}

// currentPeriod returns what the running language model of a device does until it has drained, as a batch of the plan.
func (p *devicePlanner) currentPeriod(d *device, now int64) plannedBatch {
	return plannedBatch{start: now, end: d.batchEndsAt, joinUntil: p.lastJoin(d, d.service, now, d.batchEndsAt), service: d.service, size: int32(len(d.batch)), kvTokens: d.kvTokens, hasRevealed: true}
}

// lastJoin returns when a task appended to a queue could at the latest join a language model that runs over an interval:
// before any task of another service may run.
func (p *devicePlanner) lastJoin(d *device, service int32, begin, end int64) int64 {
	lastJoin := end
	for i, id := range d.queue {
		if k := &p.book.tasks[id]; k.slot >= 0 && k.service != service && d.readyTimes[i] >= 0 {
			lastJoin = min(lastJoin, max(begin, d.readyTimes[i]))
		}
	}
	return lastJoin
}

// planJoins lets the waiting tasks of a queue join a planned period of a language model, as sequences, and returns
// how many do. headPosition is the first position of the service that is not planned. A period accepts tasks until
// joinUntil and ends with its last task.
func (p *devicePlanner) planJoins(d *device, place, headPosition int32, period *plannedBatch) (joinedTasks int32) {
	for i := headPosition; i < int32(len(d.queue)); i = d.nextOfService[i] {
		joinAt := max(d.readyTimes[i], period.start)
		k := &p.book.tasks[d.queue[i]]
		if d.readyTimes[i] == positionPlanned || joinAt > period.joinUntil || !p.tables.fitsOneMore(period.service, place, period.size, period.kvTokens, k.work) {
			continue
		}
		period.size++
		period.kvTokens += p.tables.tokensOf(period.service, k.work)
		period.hasRevealed = period.hasRevealed || k.slot >= 0
		k.endsAt = joinAt + p.tables.batchTime(period.service, place, period.size, k.work) + p.states.recomputeTime(k, place)
		// Until now it accepted tasks to its end, so it does so to its new end.
		if period.joinUntil == period.end {
			period.joinUntil = max(period.end, k.endsAt)
		}
		period.end = max(period.end, k.endsAt)
		d.readyTimes[i] = positionPlanned
		joinedTasks++
	}
	return joinedTasks
}
