package workflow

import "slices"

// device is a device with its queue of tasks, what its memory holds, and its plan: the batches and loads that its queue will cause.
type device struct {
	queue             []int32 // IDs of waiting tasks, in order of their keys; a queue position is an index in it
	runningTasks      []int32 // IDs of the tasks in the running batch, or of the running sequences
	runningService    int32   // service of these tasks
	isBusy            bool    // it runs a batch or sequences
	isDown            bool    // it is lost
	batchEndsAt       int64   // expected end in ns of the batch, or of the last sequence of a language model
	kvTokens          int64   // KV tokens that the running sequences will hold
	progressCountedAt int64   // time in ns up to which the progress of the sequences is counted

	memoryBytes    int64   // size of the memory; 0 if no network is loaded at run time
	usedBytes      int64   // bytes of networks that are loaded or being loaded, and of session states
	holdsNetwork   []bool  // by network: whether it is loaded
	lastUsedAt     []int64 // by network: time in ns at which a batch last used it
	sessionStates  []int32 // IDs of the tasks whose session states are on the device
	loadingNetwork int32   // network that is being loaded; -1 if none
	loadEndsAt     int64   // expected end in ns of that load

	planOutdated     bool           // the plan has to be computed anew
	planValidUntil   int64          // time in ns up to which the plan holds if nothing changes
	plannedBatches   []plannedBatch // batches that the queue will cause, in order
	plannedLoads     []plannedLoad  // loads that the queue needs and that have not begun
	planEnd          int64          // end in ns of the last planned batch
	copyEngineFreeAt int64          // time in ns at which the copy engine, which loads networks, has done all loads
	availableBytes   int64          // bytes that are free or can be freed
	readyTimes       []int64        // scratch, by queue position: when the task may run in ns, or a mark (chosenMark, plannedMark)
	nextUnplanned    []int32        // scratch, by queue position: the next position that is in no batch of the plan
	nextOfService    []int32        // scratch, by queue position: the next position of the same service
}

// plannedBatch is a batch that a device will run by its plan. For a language model it is the period from its first sequence until none is left.
type plannedBatch struct {
	start, end    int64 // in ns
	lastJoinAt    int64 // a task that is appended to the queue can join if it is ready by then, in ns
	kvTokens      int64 // KV tokens that its sequences will hold
	workFactor    int64 // the largest work factor of its tasks, which sets its time
	recomputeTime int64 // part of the batch's time, in ns, in which session states are recomputed
	service, size int32 // service and number of tasks
	hasRevealed   bool  // one of its tasks is revealed; the others are only expected
}

// plannedLoad is a load of a network that a device's queue needs, with its expected end in ns.
type plannedLoad struct {
	network int32
	end     int64
}

// newDevice returns a device without tasks, memory or networks. networks is the number of networks of the plan.
func newDevice(networks int) device {
	return device{loadingNetwork: -1, holdsNetwork: make([]bool, networks), lastUsedAt: make([]int64, networks), planOutdated: true}
}

// enqueue inserts a task into the device's queue by its order key, behind tasks with the same key. tasks is registry.tasks, which has the keys.
func (d *device) enqueue(tasks []task, taskID int32) {
	d.queue = append(d.queue, taskID)
	for i := len(d.queue) - 1; i > 0 && tasks[d.queue[i-1]].orderKey > tasks[taskID].orderKey; i-- {
		d.queue[i], d.queue[i-1] = d.queue[i-1], taskID
	}
	d.planOutdated = true
}

// dequeue removes a task from the device's queue, if it is there.
func (d *device) dequeue(taskID int32) {
	if position := slices.Index(d.queue, taskID); position >= 0 {
		d.queue = slices.Delete(d.queue, position, position+1)
	}
	d.planOutdated = true
}

// devicePlanner computes the plans of devices, which are the batches and loads that their queues will cause, and the end table that follows
// from them.
type devicePlanner struct {
	cluster        *cluster
	registry       *registry
	tables         *deviceTables
	states         *stateStore
	endTable       endTable // when a further task would end, by service and device
	fullBatch      fullBatchFinder
	currentEpoch   int32   // number of the present call of planLoads
	epochOfNetwork []int32 // by network: the latest call of planLoads that found it needed
	firstOfService []int32 // scratch, by service: first queue position of the service
}

// newDevicePlanner returns a planner for the devices of a cluster. states gives it the times to recompute session states.
func newDevicePlanner(cluster *cluster, states *stateStore) *devicePlanner {
	services, networks := len(cluster.tables.services), len(cluster.tables.networkBytes)
	return &devicePlanner{cluster: cluster, registry: cluster.registry, tables: cluster.tables, states: states, endTable: newEndTable(services, len(cluster.devices)), fullBatch: newFullBatchFinder(services),
		epochOfNetwork: make([]int32, networks), firstOfService: make([]int32, services)}
}

// refreshPlans computes the plan of each device whose queue or memory has changed since its last plan, or whose plan holds no longer: the
// batches and loads that its queue will cause. It also writes the device's entries of the end table, which say when a further task would
// end there.
func (p *devicePlanner) refreshPlans(now int64) {
	for deviceIndex := range p.cluster.devices {
		if device := &p.cluster.devices[deviceIndex]; device.planOutdated || device.planValidUntil < now {
			p.planDevice(int32(deviceIndex), now)
			p.writeEndTable(int32(deviceIndex), now)
		}
	}
}

// planDevice computes the plan of a device: the loads and batches that its queue will cause.
// It plays the device's own rule forward, one batch at a time: each batch is headed by the first task in the queue that may run then, and takes
// all tasks of the same service that may run then. The plan holds until the next batch or load ends or starts.
func (p *devicePlanner) planDevice(deviceIndex int32, now int64) {
	device := &p.cluster.devices[deviceIndex]
	device.planOutdated, device.planValidUntil = false, farFuture
	device.plannedBatches, device.plannedLoads = device.plannedBatches[:0], device.plannedLoads[:0]

	// The plan begins when the running batch ends.
	freeAt := now
	if device.isBusy {
		freeAt = max(freeAt, device.batchEndsAt)
		device.planValidUntil = device.batchEndsAt
	}
	p.planLoads(deviceIndex, now)
	freeAt = p.planBatches(device, deviceIndex, now, freeAt)
	device.planEnd = freeAt

	// The plan holds until the device does something that changes it: a batch or a load ends, or an idle device starts the first batch.
	if !device.isBusy && len(device.plannedBatches) > 0 {
		device.planValidUntil = device.plannedBatches[0].start
	}
	if device.loadingNetwork >= 0 {
		device.planValidUntil = min(device.planValidUntil, device.loadEndsAt)
	}
}

// planBatches plans the batches of a device's queue from freeAt on, the end of the running batch, and returns the end of the last one.
// Times are in ns. Queue positions that are in a planned batch are unlinked from the list in device.nextUnplanned, so that they are not
// passed again.
func (p *devicePlanner) planBatches(device *device, deviceIndex int32, now, freeAt int64) int64 {
	queueLength := int32(len(device.queue))
	p.linkQueue(device, deviceIndex, now)
	firstUnplanned, unplanned := int32(0), queueLength

	// Tasks join the language model that runs already, before any batch is planned behind it.
	if device.isBusy && p.tables.isLanguageModel(device.runningService) {
		batch := p.currentPeriod(device, now)
		unplanned -= p.planSequences(device, deviceIndex, p.firstOfService[device.runningService], &batch)
		device.plannedBatches = append(device.plannedBatches, batch)
		freeAt = batch.end
	}

	// Then each batch starts when the one before it has ended. Every task of the queue is ready at some time, so the loop ends.
	for unplanned > 0 {
		headPosition, nextReady := p.nextHead(device, deviceIndex, &firstUnplanned, freeAt)
		if headPosition < 0 {
			freeAt = nextReady // nothing is ready yet, so the device idles until something is
			continue
		}
		unplanned -= p.planBatch(device, deviceIndex, headPosition, freeAt)
		freeAt = device.plannedBatches[len(device.plannedBatches)-1].end
	}
	return freeAt
}

// nextHead returns the queue position of the task that heads the batch which a device starts at startAt: the first one that is ready by then,
// or with the option FullBatchFirst the first task of a full batch, if that may go first.
// If none is ready, it returns -1. nextReady is the earliest time, in ns, at which one of the positions that it passed is ready.
// firstUnplanned is the first position of the list in device.nextUnplanned. Positions that are in a planned batch already are unlinked from it.
func (p *devicePlanner) nextHead(device *device, deviceIndex int32, firstUnplanned *int32, startAt int64) (headPosition int32, nextReady int64) {
	headPosition, nextReady = -1, farFuture
	previous := int32(-1)
	p.fullBatch.reset()
	for i := *firstUnplanned; i < int32(len(device.queue)); i = device.nextUnplanned[i] {
		// Unlink positions that are in a planned batch.
		readyAt := device.readyTimes[i]
		if readyAt == plannedMark && previous < 0 {
			*firstUnplanned = device.nextUnplanned[i]
			continue
		}
		if readyAt == plannedMark {
			device.nextUnplanned[previous] = device.nextUnplanned[i]
			continue
		}

		// Note when the earliest of the others is ready.
		previous, nextReady = i, min(nextReady, readyAt)
		if readyAt > startAt {
			continue
		}

		// It is ready. A full batch behind it may go first.
		if headPosition < 0 {
			headPosition = i
		}
		if !p.cluster.options.FullBatchFirst {
			break // the first ready task heads the batch
		}
		if fullHead := p.fullBatch.addTask(p.tables, &p.registry.tasks[device.queue[i]], deviceIndex, i, startAt); fullHead >= 0 {
			return fullHead, nextReady
		}
	}
	return headPosition, nextReady
}

// linkQueue prepares the planning of a device's queue. It computes into device.readyTimes when each task may run, because its inputs and its network
// are there. It links each position to the next one in the queue (nextUnplanned, from which planBatches unlinks the tasks that it has put
// into batches), and to the next one of the same service (nextOfService, which begins at firstOfService).
// The lists end at a position behind the last one, the length of the queue.
func (p *devicePlanner) linkQueue(device *device, deviceIndex int32, now int64) {
	// Compute the ready times. The lists of services are empty at first. firstOfService has entries of earlier devices, so those that are read
	// are reset: of the services in the queue, and of the running one, which may have no task there (planBatches).
	queueLength := int32(len(device.queue))
	device.readyTimes, device.nextUnplanned = device.readyTimes[:0], device.nextUnplanned[:0]
	device.nextOfService = slices.Grow(device.nextOfService[:0], int(queueLength))[:queueLength]
	if device.isBusy {
		p.firstOfService[device.runningService] = queueLength
	}
	for i, taskID := range device.queue {
		task := &p.registry.tasks[taskID]
		device.readyTimes = append(device.readyTimes, max(p.inputsReadyAt(task, deviceIndex, now), device.networkReadyAt(p.tables.services[task.service].network)))
		device.nextUnplanned = append(device.nextUnplanned, int32(i)+1)
		p.firstOfService[task.service] = queueLength
	}

	// Link the positions of each service backwards, so that firstOfService is its first position in the end.
	for i := queueLength - 1; i >= 0; i-- {
		service := p.registry.tasks[device.queue[i]].service
		device.nextOfService[i], p.firstOfService[service] = p.firstOfService[service], i
	}
}

// planBatch adds to a device's plan the batch that starts at startAt, in ns, and is headed by the task at a queue position.
// The batch takes all tasks of that service that are ready by then, up to the largest batch.
// It writes the expected end into the tasks, and returns the number of tasks.
// A language model starts a period instead, in which tasks run as sequences that come and go.
func (p *devicePlanner) planBatch(device *device, deviceIndex, headPosition int32, startAt int64) int32 {
	batch := plannedBatch{start: startAt, lastJoinAt: startAt, service: p.registry.tasks[device.queue[headPosition]].service}
	if p.tables.isLanguageModel(batch.service) {
		// The period has no sequence yet, so it ends where it starts. Each sequence that joins moves its end.
		batch.end = startAt
		joinedTasks := p.planSequences(device, deviceIndex, headPosition, &batch)
		device.plannedBatches = append(device.plannedBatches, batch)
		return joinedTasks
	}

	// Choose tasks of the service that are ready, up to the largest batch. nextOfService leads to the next task of the service, and at last
	// behind the queue. The task with the largest work factor sets the time of the batch. The times in which session states (KV caches of
	// earlier tasks) that are not on the device are recomputed are added to that.
	maxBatch, lastChosen := p.tables.profileOn(batch.service, deviceIndex).maxBatch, headPosition
	for i := headPosition; i < int32(len(device.queue)) && batch.size < maxBatch; i = device.nextOfService[i] {
		if device.readyTimes[i] > startAt || device.readyTimes[i] == plannedMark {
			continue
		}
		task := &p.registry.tasks[device.queue[i]]
		batch.size++
		batch.hasRevealed = batch.hasRevealed || task.isRevealed()
		batch.workFactor = max(batch.workFactor, task.workFactor)
		batch.recomputeTime += p.states.recomputeTime(task, deviceIndex)
		device.readyTimes[i], lastChosen = chosenMark, i
	}

	// Now the end of the batch is known; write it into its tasks, which chosenMark tells from those that are in earlier batches (plannedMark).
	batch.end = startAt + p.tables.batchTime(batch.service, deviceIndex, batch.size, batch.workFactor) + batch.recomputeTime
	for i := headPosition; i <= lastChosen; i = device.nextOfService[i] {
		if device.readyTimes[i] == chosenMark {
			p.registry.tasks[device.queue[i]].endsAt, device.readyTimes[i] = batch.end, plannedMark
		}
	}
	device.plannedBatches = append(device.plannedBatches, batch)
	return batch.size
}

// Marks in device.readyTimes stand in place of the time of a task that a planned batch has. Times are not negative, so marks differ from them.
const (
	chosenMark  = -1 // the task is in the batch under construction
	plannedMark = -2 // the task is in a finished batch of the plan
)

// inputsReadyAt returns when all inputs of a task are expected at a device, in ns and not before now. An input arrives when its task has ended and
// the transfer of its output is over. A session state that is on its way to the task counts like an input.
func (p *devicePlanner) inputsReadyAt(task *task, deviceIndex int32, now int64) int64 {
	readyAt := now
	if task.stateInTransit {
		readyAt = max(readyAt, task.stateArrivesAt)
	}
	if task.inputsDevice == deviceIndex {
		return readyAt
	}
	for _, input := range task.inputs {
		if input >= 0 {
			// An input without a device (-1) counts as if it came from device 0.
			inputTask := &p.registry.tasks[input]
			readyAt = max(readyAt, inputTask.endsAt+p.tables.transferTime(inputTask.service, max(inputTask.deviceIndex, 0), deviceIndex))
		}
	}
	return readyAt
}

// unlimitedBytes is more than any memory.
const unlimitedBytes = int64(1) << 60

// planLoads lists in the device's plan the loads of networks that its queue needs and that have not begun, one after the other on its copy engine.
// It also computes availableBytes, the bytes of memory that are free or can be freed.
// A network that several tasks need is planned once: epochOfNetwork marks those that this call has seen.
func (p *devicePlanner) planLoads(deviceIndex int32, now int64) {
	device := &p.cluster.devices[deviceIndex]
	device.copyEngineFreeAt = now
	if device.loadingNetwork >= 0 {
		device.copyEngineFreeAt = max(now, device.loadEndsAt)
	}

	// Without a memory size nothing is loaded, and memory is no limit.
	device.availableBytes = unlimitedBytes
	if device.memoryBytes == 0 {
		return
	}

	// Plan one load for every network that the queue needs and the device lacks.
	p.currentEpoch++ // networks of earlier calls count as not seen
	device.availableBytes = device.memoryBytes - device.usedBytes
	for _, taskID := range device.queue {
		profile := &p.tables.services[p.registry.tasks[taskID].service]
		network := profile.network
		if p.epochOfNetwork[network] == p.currentEpoch {
			continue // an earlier task in the queue needs it, too
		}
		p.epochOfNetwork[network] = p.currentEpoch
		if !device.holdsNetwork[network] && network != device.loadingNetwork {
			device.copyEngineFreeAt += profile.byKind[p.tables.kindOf[deviceIndex]].loadTime
			device.plannedLoads = append(device.plannedLoads, plannedLoad{network, device.copyEngineFreeAt})
			device.availableBytes -= p.tables.networkBytes[network]
		}
	}

	// The running batch needs its network, too. It is loaded, so no load had to be planned for it.
	if device.isBusy {
		p.epochOfNetwork[p.tables.services[device.runningService].network] = p.currentEpoch
	}

	// Networks that this call has not marked as needed can be evicted, and so can session states (KV caches) that no task or only an expected
	// task needs, which have the eviction classes up to expectedClass.
	for network, isLoaded := range device.holdsNetwork {
		if isLoaded && p.epochOfNetwork[network] != p.currentEpoch {
			device.availableBytes += p.tables.networkBytes[network]
		}
	}
	for _, taskID := range device.sessionStates {
		if p.states.stateClass(taskID) <= expectedClass {
			device.availableBytes += p.registry.tasks[taskID].sessionState.bytes
		}
	}
}

// networkReadyAt returns when a network is usable on the device, in ns: 0 if it is loaded, or the end of its load.
// If the device neither holds the network nor plans to load it, it returns -1. If the device never loads a network, it returns farFuture.
func (d *device) networkReadyAt(network int32) int64 {
	switch {
	case d.holdsNetwork[network]:
		return 0
	case d.memoryBytes == 0:
		return farFuture
	}
	if network == d.loadingNetwork {
		return d.loadEndsAt
	}
	for i := range d.plannedLoads {
		if d.plannedLoads[i].network == network {
			return d.plannedLoads[i].end
		}
	}
	return -1
}

// networkUsableAt returns the first time, in ns, at which a task of a service that is placed on a device now finds its network loaded there.
// A load that no task has caused yet begins behind the planned ones and, if memory has to be freed for it, ends after the planned batches.
// If the device cannot run the service, or must not load its network (Options.StaticNetworks), it returns farFuture.
func (p *devicePlanner) networkUsableAt(deviceIndex, service int32) int64 {
	device, profile := &p.cluster.devices[deviceIndex], &p.tables.services[service]
	kindProfile := &profile.byKind[p.tables.kindOf[deviceIndex]]
	if kindProfile.batchTimes == nil {
		return farFuture
	}
	if usableAt := device.networkReadyAt(profile.network); usableAt >= 0 {
		return usableAt
	}
	if p.cluster.options.StaticNetworks && p.cluster.copyCount[profile.network] > 0 {
		return farFuture
	}

	// The load begins when the copy engine has done the others. If memory has to be freed, it ends after
	// the planned batches, which use that memory.
	usableAt := device.copyEngineFreeAt + kindProfile.loadTime
	if device.availableBytes < p.tables.networkBytes[profile.network] {
		usableAt = max(usableAt, device.planEnd)
	}
	return usableAt
}

// firstIdle returns the first time in ns, not before idleAt, at which the device can start a batch of a given duration without delaying a
// planned batch that holds a revealed task. Planned batches with only expected tasks give way.
// A busy device is idle when its running batch ends at the earliest.
func (d *device) firstIdle(idleAt, duration int64) int64 {
	if d.isBusy {
		idleAt = max(idleAt, d.batchEndsAt)
	}
	for i := range d.plannedBatches {
		batch := &d.plannedBatches[i]
		neededGap := duration
		if !batch.hasRevealed {
			neededGap = 1 // expected tasks give way, unless their batch has begun by then
		}
		if idleAt+neededGap > batch.start {
			idleAt = max(idleAt, batch.end)
		} else if batch.hasRevealed {
			break
		}
	}
	return idleAt
}

// writeEndTable writes a device's entries of the end table: for each service when a further task would end there, in a batch of its own in the
// first gap of the plan, or in a planned batch that it can join. It is called when the device's plan has changed.
// A device that is down never ends anything (farFuture).
func (p *devicePlanner) writeEndTable(deviceIndex int32, now int64) {
	device, tables := &p.cluster.devices[deviceIndex], p.tables
	if device.isDown {
		for service := range tables.services {
			p.endTable.setSolo(int32(service), deviceIndex, farFuture, 0)
		}
		return
	}

	// First the entries of a batch of one, in the first gap of the plan.
	kind := tables.kindOf[deviceIndex]
	for service := range tables.services {
		profile := &tables.services[service]
		kindProfile := &profile.byKind[kind]
		if kindProfile.batchTimes == nil {
			p.endTable.setSolo(int32(service), deviceIndex, farFuture, 0)
			continue
		}
		soloTime := kindProfile.batchTimes[0] // of a batch of one
		idleAt := device.firstIdle(now, soloTime)
		if !device.holdsNetwork[profile.network] {
			idleAt = p.networkUsableAt(deviceIndex, int32(service))
			if idleAt < farFuture {
				idleAt = device.firstIdle(max(idleAt, now), soloTime)
			}
		}
		p.endTable.setSolo(int32(service), deviceIndex, idleAt, soloTime)
	}

	// Then the planned batches that a task can join. The loop runs backwards, so the earliest one of a service stays.
	// With the task a batch has size+1 tasks, whose time is at index size. Sequences of a language model start at any time until lastJoinAt, so
	// one that joins is written like a batch of its own. Other batches take tasks until they start.
	for i := len(device.plannedBatches) - 1; i >= 0; i-- {
		batch := &device.plannedBatches[i]
		kindProfile := &tables.services[batch.service].byKind[kind]
		switch {
		case !tables.fitsOneMore(batch.service, deviceIndex, batch.size, batch.kvTokens, fixedOne):
		case tables.isLanguageModel(batch.service):
			if batch.lastJoinAt >= now {
				p.endTable.setSolo(batch.service, deviceIndex, max(batch.start, now), kindProfile.batchTimes[batch.size])
			}
		case batch.start >= now:
			p.endTable.setJoin(batch.service, deviceIndex, batch.start, kindProfile.batchTimes[batch.size]+batch.recomputeTime)
		}
	}
}

// currentPeriod returns the language model that runs on a device as a batch of its plan: from now until its last sequence has ended.
func (p *devicePlanner) currentPeriod(device *device, now int64) plannedBatch {
	return plannedBatch{start: now, end: device.batchEndsAt, lastJoinAt: p.drainStart(device, now), service: device.runningService, size: int32(len(device.runningTasks)), kvTokens: device.kvTokens, hasRevealed: true}
}

// drainStart returns when, in ns, the language model that runs on a device stops to take sequences, as far as is known now: when the first
// revealed task of another service in the queue may run, because the device then drains for that. Without such a task it is the end of the
// last sequence.
func (p *devicePlanner) drainStart(device *device, now int64) int64 {
	drainStart := device.batchEndsAt
	for i, taskID := range device.queue {
		if task := &p.registry.tasks[taskID]; task.isRevealed() && task.service != device.runningService && device.readyTimes[i] >= 0 {
			drainStart = min(drainStart, max(now, device.readyTimes[i]))
		}
	}
	return drainStart
}

// planSequences lets tasks of a device's queue join a planned period of a language model as sequences, and returns how many do.
// headPosition is the first queue position of the service that is in no planned batch. A period takes tasks that are ready by lastJoinAt, as far as
// its KV memory suffices, and ends with its last task. If a task of another service waits for the device, the period drains, which means that
// it takes no sequences from lastJoinAt on, before its end. Otherwise lastJoinAt is its end.
// It is called for the period that runs now, and for each later one when that is planned.
func (p *devicePlanner) planSequences(device *device, deviceIndex, headPosition int32, period *plannedBatch) (joinedTasks int32) {
	for i := headPosition; i < int32(len(device.queue)); i = device.nextOfService[i] {
		readyAt := device.readyTimes[i]
		joinAt := max(readyAt, period.start)
		task := &p.registry.tasks[device.queue[i]]
		if readyAt == plannedMark || joinAt > period.lastJoinAt || !p.tables.fitsOneMore(period.service, deviceIndex, period.size, period.kvTokens, task.workFactor) {
			continue
		}
		period.size++
		period.kvTokens += p.tables.tokensOf(period.service, task.workFactor)
		period.hasRevealed = period.hasRevealed || task.isRevealed() // a period of expected (predicted) tasks alone gives way to others

		// More sequences make each of them slower. Here that counts for the one that joins; the expected ends of the others stay.
		// A session state (KV cache of an earlier task) that is not there is recomputed first.
		task.endsAt = joinAt + p.tables.batchTime(period.service, deviceIndex, period.size, task.workFactor) + p.states.recomputeTime(task, deviceIndex)
		// The period ends later. If it does not drain, it also takes tasks up to the new end.
		if period.lastJoinAt == period.end {
			period.lastJoinAt = max(period.end, task.endsAt)
		}
		period.end = max(period.end, task.endsAt)
		device.readyTimes[i] = plannedMark
		joinedTasks++
	}
	return joinedTasks
}
