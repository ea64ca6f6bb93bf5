package workflow

import "slices"

// placement is one possibility to run a task of the job on a device: in a batch of its own, or in one that it joins. Times are in ns.
type placement struct {
	end, start        int64 // when the task would end, and begin to run
	recomputeTime     int64 // part of the batch's time in which session states are recomputed
	cost              int64 // the end, plus what the device time costs other tasks; farFuture rules the placement out
	jobBatchIndex     int32 // the batch of other tasks of the job that it joins, in search.jobBatches; -1 if none
	plannedBatchIndex int32 // the batch of the device's plan that it joins; -1 if none
}

// collectPlacements writes into a level of the search the placements of a task on its candidate devices, and on the devices of the tasks
// that it reads. The search tries the `width` cheapest of them (0 stands for no limit), whose costs addPlacement keeps in order in
// level.cheapestCosts.
//
// Candidates are sorted by the task's earliest end on them, which the scheduler has computed. A placement hardly ever ends before that (only
// if the task is too late for the first open batch there and joins a second one), and its cost is its end with what it costs other tasks.
// So if the `width` cheapest placements so far cost no more than the earliest end on the next candidate, that and all later candidates are
// skipped.
func (s *search) collectPlacements(job *job, taskIndex int32, level *searchLevel) {
	// Candidates, until enough cheaper placements are known. The scheduler has a row of ends by device for each task; a task that is identical
	// to an earlier one uses the row of that (rowOf).
	level.devices, level.placements, level.cheapestCosts = level.devices[:0], level.placements[:0], level.cheapestCosts[:0]
	deviceCount := len(s.cluster.devices)
	rowStart := int(s.scheduler.rowOf[taskIndex]) * deviceCount
	earliestEnds := s.scheduler.earliestEnds[rowStart : rowStart+deviceCount]
	for _, deviceIndex := range s.candidateDevices[taskIndex] {
		if s.width > 0 && len(level.cheapestCosts) == s.width && level.cheapestCosts[s.width-1] <= earliestEnds[deviceIndex] {
			break
		}
		s.addPlacement(job, taskIndex, deviceIndex, level)
	}

	// Devices of the tasks that it reads, from which no transfer is needed. With width 0 all devices are candidates.
	if s.width > 0 {
		for _, input := range job.inputsOf(taskIndex) {
			if input >= 0 && !slices.Contains(level.devices, s.currentDevice[input]) {
				s.addPlacement(job, taskIndex, s.currentDevice[input], level)
			}
		}
	}
}

// addPlacement adds to a level of the search the cheapest placement of a task of the job on a device, from when its inputs are there.
// With a limited search width it also keeps the lowest costs in order, by which collectPlacements stops.
func (s *search) addPlacement(job *job, taskIndex, deviceIndex int32, level *searchLevel) {
	// Find when its inputs and the session state that it continues (recomputeTime is 0 if none) are there.
	jobTask, readyAt := &job.tasks[taskIndex], s.now
	for _, input := range job.inputsOf(taskIndex) {
		if input >= 0 {
			readyAt = max(readyAt, s.currentEnd[input]+s.tables.transferTime(job.tasks[input].service, s.currentDevice[input], deviceIndex))
		}
	}
	if jobTask.recomputeTime > 0 {
		readyAt = s.readyWithState(jobTask, deviceIndex, readyAt)
	}

	// Add its cheapest placement from then on.
	candidate := s.cheapestPlacement(deviceIndex, jobTask, readyAt)
	level.devices, level.placements = append(level.devices, deviceIndex), append(level.placements, candidate)
	if s.width == 0 {
		return
	}

	// Insert the cost among the cheapest ones, by moving higher costs one place back. The highest drops out if there are enough.
	if len(level.cheapestCosts) < s.width {
		level.cheapestCosts = append(level.cheapestCosts, farFuture)
	}
	for i := len(level.cheapestCosts) - 1; i >= 0 && level.cheapestCosts[i] > candidate.cost; i-- {
		if i+1 < len(level.cheapestCosts) {
			level.cheapestCosts[i+1] = level.cheapestCosts[i]
		}
		level.cheapestCosts[i] = candidate.cost
	}
}

// readyWithState returns when a task that continues a session state (a KV cache) can start on a device, given when its other inputs are there, in ns.
// If the state is moved there, the task waits for that. Otherwise recomputeHere, the time that the task takes longer to recompute it, is set.
func (s *search) readyWithState(jobTask *jobTask, deviceIndex int32, readyAt int64) int64 {
	// The state is on a device already, or comes from a task of the job (stateSource) that the search has placed before.
	stateDevice, stateAt := jobTask.stateDevice, max(s.now, jobTask.stateReadyAt)
	if jobTask.stateSource >= 0 {
		stateDevice, stateAt = s.currentDevice[jobTask.stateSource], s.currentEnd[jobTask.stateSource]
	}

	// addedTime is the time of the move, or else of recomputing the state here: 0 if it is on the device already.
	addedTime, isMove := s.tables.stateTransferTime(jobTask.service, jobTask.recomputeTime, stateDevice, deviceIndex)
	jobTask.recomputeHere = addedTime
	if isMove {
		jobTask.recomputeHere, readyAt = 0, max(readyAt, stateAt+addedTime)
	}
	return readyAt
}

// cheapestPlacement returns the placement with the lowest cost for a task of the job on a device, given when its inputs are there, in ns:
// in a batch of its own, in a batch of other tasks of the job, or in a batch of the device's plan.
// The cost is the end of the task, plus a price in ns for what its device time costs other tasks. If the device is down or cannot run the
// service, the cost is farFuture.
func (s *search) cheapestPlacement(deviceIndex int32, jobTask *jobTask, readyAt int64) (cheapest placement) {
	device, network := &s.cluster.devices[deviceIndex], s.tables.services[jobTask.service].network
	if device.isDown || !s.tables.canRun(jobTask.service, deviceIndex) {
		return placement{end: farFuture, cost: farFuture}
	}

	// Find when the network is usable. If no task there needs it yet, its load comes behind the planned ones. With Options.StaticNetworks the
	// device may not load it (farFuture).
	usableAt := device.networkReadyAt(network)
	needsLoad := usableAt < 0
	if needsLoad {
		usableAt = s.planner.networkUsableAt(deviceIndex, jobTask.service)
	}
	if usableAt >= farFuture {
		return placement{end: farFuture, cost: farFuture}
	}
	readyAt = max(readyAt, usableAt)

	// A batch of its own, in the first gap of the plan.
	soloTime := s.tables.batchTime(jobTask.service, deviceIndex, 1, jobTask.workFactor) + jobTask.recomputeHere
	startAt := s.firstIdle(deviceIndex, device, readyAt, soloTime)
	cheapest = placement{jobBatchIndex: -1, plannedBatchIndex: -1, start: startAt, end: startAt + soloTime, recomputeTime: jobTask.recomputeHere}
	cheapest.cost = cheapest.end + s.soloPrice(deviceIndex, jobTask, readyAt, startAt, soloTime)
	// With Options.PriceDeviceTime, a load that evicts other networks costs its time once more.
	if needsLoad && s.cluster.options.PriceDeviceTime && s.cluster.needsEviction(deviceIndex, network) {
		cheapest.cost += s.tables.profileOn(jobTask.service, deviceIndex).loadTime // someone has to load the evicted networks again
	}

	// Batches of tasks of this job, and of the device's plan.
	s.considerJobBatches(deviceIndex, jobTask, readyAt, soloTime, &cheapest)
	s.considerPlannedBatch(device, deviceIndex, jobTask, readyAt, &cheapest)
	return cheapest
}

// soloPrice returns what a batch of its own for a task costs the other tasks, in ns.
// If it starts as soon as the task is ready, nobody waits for it, and that is 0.
// Otherwise it is the share queuedTimePrice (in units of 1/priceOne) of the batch's time, and all of that time again if a language model on
// the device runs half empty until the batch starts.
func (s *search) soloPrice(deviceIndex int32, jobTask *jobTask, readyAt, startAt, soloTime int64) int64 {
	if startAt <= readyAt {
		return 0
	}
	price := s.queuedTimePrice * soloTime / priceOne
	if s.cluster.options.PriceDeviceTime && s.waitsForDrain(&s.cluster.devices[deviceIndex], jobTask.service, startAt) {
		price += soloTime // the model runs half empty while it drains
	}
	return price
}

// considerJobBatches replaces the cheapest placement of a task on a device if it is cheaper to join a batch there that other tasks of the job are in.
// readyAt is when the inputs are there, and soloTime the duration of a batch of this task alone, in ns.
func (s *search) considerJobBatches(deviceIndex int32, jobTask *jobTask, readyAt, soloTime int64, cheapest *placement) {
	for i := range s.jobBatches {
		batch := &s.jobBatches[i]
		if batch.deviceIndex != deviceIndex || !s.mayJoin(&batch.plannedBatch, deviceIndex, jobTask, readyAt) {
			continue
		}

		// Joining leaves another device free, which counts like an earlier end.
		candidate := s.placementInBatch(deviceIndex, jobTask, readyAt, &batch.plannedBatch)
		candidate.cost -= s.joinBenefit(jobTask.service, soloTime, candidate.start, readyAt)
		if candidate.cost < cheapest.cost {
			*cheapest = candidate
			cheapest.jobBatchIndex = int32(i)
		}
	}
}

// considerPlannedBatch replaces the cheapest placement of a task on a device if it is cheaper to join the first batch of the device's plan
// that it can join. Later batches end later, so they are not looked at. readyAt is when the inputs are there, in ns.
func (s *search) considerPlannedBatch(device *device, deviceIndex int32, jobTask *jobTask, readyAt int64, cheapest *placement) {
	for i := range device.plannedBatches {
		batch := &device.plannedBatches[i]
		// A planned batch that another task of the job has joined is one of jobBatches, with that task. considerJobBatches looks at it there.
		if !s.mayJoin(batch, deviceIndex, jobTask, readyAt) || s.hasJoined(deviceIndex, int32(i)) {
			continue
		}
		// Price the planned batch, as it is without the task, like one of the job.
		if candidate := s.placementInBatch(deviceIndex, jobTask, readyAt, batch); candidate.cost < cheapest.cost {
			*cheapest = candidate
			cheapest.plannedBatchIndex = int32(i)
		}
		return
	}
}

// mayJoin reports whether a task can join a batch on a device: it must be ready in time (readyAt, in ns), and the batch have space.
func (s *search) mayJoin(batch *plannedBatch, deviceIndex int32, jobTask *jobTask, readyAt int64) bool {
	return batch.service == jobTask.service && max(batch.start, readyAt) <= batch.lastJoinAt && s.tables.fitsOneMore(jobTask.service, deviceIndex, batch.size, batch.kvTokens, jobTask.workFactor)
}

// placementInBatch returns the placement of a task in a batch that it joins on a device. It begins with the batch.
// In a language model, whose tasks are independent sequences, it begins when its inputs are there, readyAt in ns.
func (s *search) placementInBatch(deviceIndex int32, jobTask *jobTask, readyAt int64, batch *plannedBatch) placement {
	// The batch has size+1 tasks with this one. The caller sets the index of the batch, -1 so far.
	candidate := placement{jobBatchIndex: -1, plannedBatchIndex: -1, start: batch.start, recomputeTime: batch.recomputeTime + jobTask.recomputeHere}
	if s.tables.isLanguageModel(jobTask.service) {
		// A sequence recomputes the session state of its own task alone, and its own work factor counts.
		candidate.start, candidate.recomputeTime = max(batch.start, readyAt), jobTask.recomputeHere
		candidate.end = candidate.start + s.tables.batchTime(jobTask.service, deviceIndex, batch.size+1, jobTask.workFactor) + candidate.recomputeTime
	} else {
		candidate.end = candidate.start + s.tables.batchTime(jobTask.service, deviceIndex, batch.size+1, max(batch.workFactor, jobTask.workFactor)) + candidate.recomputeTime
	}
	candidate.cost = candidate.end
	return candidate
}

// joinBenefit returns the benefit, in ns, of joining a batch that starts as soon as the task is ready: the task leaves another device free.
// If the task would wait, it is 0. A language model that runs alone keeps its device only from other services, because further tasks of its
// own would join it, so for these the benefit is scaled by the other services' share of the demand.
func (s *search) joinBenefit(service int32, soloTime, start, readyAt int64) int64 {
	if start > readyAt || s.idleTimePrice == 0 {
		return 0
	}

	// idleTimePrice is the price of device time on an idle device, which a batch of its own would take.
	benefit := s.idleTimePrice * soloTime / priceOne
	if s.tables.isLanguageModel(service) {
		return int64(float64(benefit) * s.cluster.demand.otherServicesShare(s.tables.services, service))
	}
	return benefit
}

// hasJoined returns true if another task of the job has joined a planned batch of a device. Then that batch is among jobBatches.
func (s *search) hasJoined(deviceIndex, plannedBatchIndex int32) bool {
	for i := range s.jobBatches {
		if s.jobBatches[i].deviceIndex == deviceIndex && s.jobBatches[i].plannedBatchIndex == plannedBatchIndex {
			return true
		}
	}
	return false
}

// firstIdle returns the first time in ns, not before idleAt, at which a device can start a batch of a given duration.
// It respects the device's plan and the batches that other tasks of the job are in.
func (s *search) firstIdle(deviceIndex int32, device *device, idleAt, duration int64) int64 {
	// A batch of the job may end in a busy time of the plan, so both are asked until neither is in the way.
	for isBlocked := true; isBlocked; {
		idleAt, isBlocked = device.firstIdle(idleAt, duration), false
		for i := range s.jobBatches {
			if batch := &s.jobBatches[i]; batch.deviceIndex == deviceIndex && idleAt+duration > batch.start && idleAt < batch.end {
				idleAt, isBlocked = batch.end, true
			}
		}
	}
	return idleAt
}

// waitsForDrain returns true if a batch of a service that starts at a time (ns) on a device follows a language model, whose last sequences
// it waits for, or if it is one itself and waits for a batch of another service.
func (s *search) waitsForDrain(device *device, service int32, start int64) bool {
	for i := range device.plannedBatches {
		if batch := &device.plannedBatches[i]; batch.service != service && batch.end == start {
			return s.tables.isLanguageModel(service) || s.tables.isLanguageModel(batch.service)
		}
	}
	return false
}
