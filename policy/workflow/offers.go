package workflow

import "slices"

// offer says when a place could end a task, and at which cost.
type offer struct {
	end, start    int64 // when the task would end, and begin to run
	recomputeTime int64 // time of the batch in which session states are recomputed
	cost          int64 // the end, plus what its device time costs other tasks
	ownIndex      int32 // the job's own batch that it joins, in search.ownBatches; -1 if none
	plannedIndex  int32 // batch of the device's plan that it joins; -1 if none
}

// collectOffers collects the offers of the candidate places of a task, and of the places of its inputs.
//
// An offer ends before the earliest end f of its place only where a task joins a second open batch, being too late for
// the first. Candidates are sorted by f, so the remaining ones are skipped once as many cheaper offers are known as the
// search tries.
func (x *search) collectOffers(j *job, t int32, level *searchLevel) {
	level.places, level.offers, level.cheapestCosts = level.places[:0], level.offers[:0], level.cheapestCosts[:0]
	earliestEnds := x.scheduler.earliestEnds[int(x.scheduler.rowOf[t])*len(x.cluster.devices):][:len(x.cluster.devices)]
	for _, d := range x.candidatePlaces[t] {
		if x.width > 0 && len(level.cheapestCosts) == x.width && level.cheapestCosts[x.width-1] <= earliestEnds[d] {
			break
		}
		x.addOffer(j, t, d, level)
	}
	if x.width > 0 {
		for _, in := range j.inputsOf(t) {
			if in >= 0 && !slices.Contains(level.places, x.currentPlace[in]) {
				x.addOffer(j, t, x.currentPlace[in], level)
			}
		}
	}
}

// addOffer adds the offer of place d to task t: when the task would end there, and at what cost. With a limited
// search width it also keeps the costs of the cheapest offers in order, by which collectOffers stops.
func (x *search) addOffer(j *job, t, d int32, level *searchLevel) {
	k, readyAt := &j.tasks[t], x.now
	for _, in := range j.inputsOf(t) {
		if in >= 0 {
			readyAt = max(readyAt, x.currentEnd[in]+x.tables.transferTime(j.tasks[in].service, x.currentPlace[in], d))
		}
	}
	if k.recomputeTime > 0 {
		readyAt = x.readyWithState(k, d, readyAt)
	}
	o := x.bestOffer(d, k, readyAt)
	level.places, level.offers = append(level.places, d), append(level.offers, o)
	if x.width == 0 {
		return
	}

	// Insert the cost among the cheapest ones.
	if len(level.cheapestCosts) < x.width {
		level.cheapestCosts = append(level.cheapestCosts, farFuture)
	}
	for i := len(level.cheapestCosts) - 1; i >= 0 && level.cheapestCosts[i] > o.cost; i-- {
		if i+1 < len(level.cheapestCosts) {
			level.cheapestCosts[i+1] = level.cheapestCosts[i]
		}
		level.cheapestCosts[i] = o.cost
	}
}

// readyWithState returns when a task may start at a place with the session state that it continues. It sets the task's
// addedTime to the time that recomputing the state there takes, or to 0 if the state is moved.
func (x *search) readyWithState(k *jobTask, place int32, readyAt int64) int64 {
	stateHome, stateAt := k.stateHome, max(x.now, k.stateHomeAt)
	if k.stateFrom >= 0 {
		stateHome, stateAt = x.currentPlace[k.stateFrom], x.currentEnd[k.stateFrom]
	}
	transferTime, isMove := x.tables.stateTransferTime(k.service, k.recomputeTime, stateHome, place)
	if k.addedTime = transferTime; isMove {
		k.addedTime, readyAt = 0, max(readyAt, stateAt+transferTime)
	}
	return readyAt
}

// bestOffer returns the cheapest offer of a place to a task whose inputs are there at readyAt: to have a batch of
// its own, or to join a batch that is still open. The cost is the end, plus prices of the device time that others
// lose, in ns. If the place cannot take the task at all, end and cost are farFuture.
func (x *search) bestOffer(place int32, k *jobTask, readyAt int64) (cheapest offer) {
	d, network := &x.cluster.devices[place], x.tables.services[k.service].network
	if d.down {
		return offer{end: farFuture, cost: farFuture}
	}

	// When is the network usable?
	usableAt := d.networkReadyAt(network)
	needsLoad := usableAt < 0 // no task there needs the network yet
	if needsLoad || !x.tables.canRun(k.service, place) {
		usableAt = x.planner.networkUsableAt(place, k.service)
	}
	if usableAt >= farFuture {
		return offer{end: farFuture, cost: farFuture}
	}
	readyAt = max(readyAt, usableAt)

	// A batch of its own, in the first gap of the plan.
	soloTime := x.tables.batchTime(k.service, place, 1, k.work) + k.addedTime
	startAt := x.firstIdle(place, d, readyAt, soloTime)
	cheapest = offer{ownIndex: -1, plannedIndex: -1, start: startAt, end: startAt + soloTime, recomputeTime: k.addedTime}
	cheapest.cost = cheapest.end + x.soloPrice(place, k, readyAt, startAt, soloTime)
	if needsLoad && x.cluster.options.PriceDeviceTime && x.cluster.crowdsOut(place, network) {
		cheapest.cost += x.tables.serviceOn(k.service, place).loadTime // someone has to load the evicted networks again
	}

	// Batches of tasks of this job, and of the device's plan.
	x.offerOwnBatches(place, k, readyAt, soloTime, &cheapest)
	x.offerPlannedBatch(d, place, k, readyAt, &cheapest)
	return cheapest
}

// soloPrice returns what a batch of its own costs other tasks. If it starts as soon as the task is ready, that is 0.
func (x *search) soloPrice(place int32, k *jobTask, readyAt, startAt, soloTime int64) int64 {
	if startAt <= readyAt {
		return 0
	}
	price := x.queuedTimePrice * soloTime >> 10
	if x.cluster.options.PriceDeviceTime && x.waitsForDrain(&x.cluster.devices[place], k.service, startAt) {
		price += soloTime // the model runs half empty while it drains
	}
	return price
}

// offerOwnBatches replaces an offer (when and at what cost a place would run a task) by the cheapest one to join a
// batch that tasks of this job form already at the place, if that costs less.
func (x *search) offerOwnBatches(place int32, k *jobTask, readyAt, soloTime int64, cheapest *offer) {
	for i := range x.ownBatches {
		b := &x.ownBatches[i]
		if b.place != place || b.service != k.service || max(b.start, readyAt) > b.joinUntil || !x.tables.fitsOneMore(k.service, place, b.size, b.kvTokens, k.work) {
			continue
		}
		o := x.joinOffer(place, k, readyAt, b)
		if o.cost -= x.joinBenefit(k.service, soloTime, o.start, readyAt); o.cost < cheapest.cost {
			*cheapest = o
			cheapest.ownIndex = int32(i)
		}
	}
}

// offerPlannedBatch replaces an offer (when and at what cost a place would run a task) by the one to join the first
// open batch of the device's plan, if that costs less. Later batches end later, so only the first is looked at.
func (x *search) offerPlannedBatch(d *device, place int32, k *jobTask, readyAt int64, cheapest *offer) {
	for i := range d.plannedBatches {
		b := &d.plannedBatches[i]
		if b.service != k.service || max(b.start, readyAt) > b.joinUntil || !x.tables.fitsOneMore(k.service, place, b.size, b.kvTokens, k.work) || x.hasJoined(place, int32(i)) {
			continue
		}
		if o := x.joinOffer(place, k, readyAt, &jobBatch{start: b.start, size: b.size, work: b.work, recomputeTime: b.recomputeTime}); o.cost < cheapest.cost {
			*cheapest = o
			cheapest.plannedIndex = int32(i)
		}
		return
	}
}

// joinOffer returns the offer of a batch to a task that joins it. The task begins with the batch; on a language model it
// begins when its inputs are there.
func (x *search) joinOffer(place int32, k *jobTask, readyAt int64, b *jobBatch) offer {
	o := offer{ownIndex: -1, plannedIndex: -1, start: b.start, recomputeTime: b.recomputeTime + k.addedTime}
	if x.tables.isLanguageModel(k.service) {
		o.start, o.recomputeTime = max(b.start, readyAt), k.addedTime
		o.end = o.start + x.tables.batchTime(k.service, place, b.size+1, k.work) + o.recomputeTime
	} else {
		o.end = o.start + x.tables.batchTime(k.service, place, b.size+1, max(b.work, k.work)) + o.recomputeTime
	}
	o.cost = o.end
	return o
}

// joinBenefit returns the benefit, in ns, of joining a batch that starts at once: the task leaves another device free. A
// language model that runs alone keeps its device only from other services, because further tasks of its own would join
// it, so for these the benefit is scaled by the other services' share of the demand.
func (x *search) joinBenefit(service int32, soloTime, start, readyAt int64) int64 {
	if start > readyAt || x.idleTimePrice == 0 {
		return 0
	}
	benefit := x.idleTimePrice * soloTime >> 10
	if x.tables.isLanguageModel(service) {
		return int64(float64(benefit) * x.cluster.demand.otherServicesShare(x.tables.services, service))
	}
	return benefit
}

// hasJoined returns true if a task of the job (the tasks that are placed together) has joined a planned batch of a
// place already. Then that batch is among the job's own.
func (x *search) hasJoined(place, plannedIndex int32) bool {
	for i := range x.ownBatches {
		if x.ownBatches[i].place == place && x.ownBatches[i].plannedIndex == plannedIndex {
			return true
		}
	}
	return false
}

// firstIdle returns the first instant, not before a given one, at which a device can start a batch of a given duration,
// the job's own batches included.
func (x *search) firstIdle(place int32, d *device, idleAt, duration int64) int64 {
	for moved := true; moved; {
		idleAt, moved = d.firstIdle(idleAt, duration), false
		for i := range x.ownBatches {
			if b := &x.ownBatches[i]; b.place == place && idleAt+duration > b.start && idleAt < b.end {
				idleAt, moved = b.end, true
			}
		}
	}
	return idleAt
}

// waitsForDrain returns true if a batch of a service that starts at an instant waits for a language model to drain, or
// is a language model that waits for a batch.
func (x *search) waitsForDrain(d *device, service int32, start int64) bool {
	for i := range d.plannedBatches {
		if b := &d.plannedBatches[i]; b.service != service && b.end == start {
			return x.tables.isLanguageModel(service) || x.tables.isLanguageModel(b.service)
		}
	}
	return false
}
