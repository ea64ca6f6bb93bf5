package workflow

import "time"

// search places the tasks of a job depth first. Unlike in the scheduler, tasks of the job wait for each other and share
// batches. It tries the candidate places in the order of their offers, prunes what cannot beat the best schedule, and
// stops when a schedule reaches the scheduler's bound, or after a number of steps.
//
// It minimises the end of the last task, and then the sum of all ends. Ends count with their costs (setPrice).
type search struct {
	cluster   *cluster
	tables    *deviceTables
	planner   *devicePlanner
	scheduler *scheduler
	width     int // places tried per task; 0 tries only the best one of all
	maxSteps  int // bound on the steps

	now             int64
	candidatePlaces [][]int32  // by task: candidate places, by rising f
	ownBatches      []jobBatch // batches of the tasks placed so far
	minRemaining    []int64    // by task: least time from its end to that of the last task
	currentPlace    []int32    // by task: its place in the schedule under construction
	currentEnd      []int64    // by task: its end in that schedule
	currentBatch    []int32    // by task: its batch in that schedule
	bestPlace       []int32    // by task: its place in the best schedule
	bestEnd         []int64    // by task: its end in the best schedule
	bestStart       []int64    // by task: its start in the best schedule
	currentStart    []int64    // by task: its start in the schedule under construction
	bestLastEnd     int64      // end of the best schedule; farFuture if there is none
	bestEndSum      int64      // sum of its ends
	endBound        int64      // no schedule ends earlier
	queuedTimePrice int64      // price of device time where others wait, in 1/1024
	idleTimePrice   int64      // price of device time on an idle device, in 1/1024
	steps           int
	levels          []searchLevel
}

// searchLevel is the scratch memory of one depth of the search: places with their offers to the task.
type searchLevel struct {
	places        []int32
	offers        []offer
	cheapestCosts []int64 // the lowest costs of the offers, rising, as many as are tried
}

// jobBatch is a batch that tasks of the job would be in.
type jobBatch struct {
	place, plannedIndex int32 // its place, and the batch of the device's plan that it extends; -1 if it is new
	service, size       int32 // service and number of tasks
	start, end          int64
	work, recomputeTime int64
	joinUntil, kvTokens int64 // as in plannedBatch
}

// Bounds of the search: its steps, and the candidate places of a task beyond SearchWidth.
const (
	maxSearchSteps  = 16
	extraCandidates = 1
)

// Device time costs nothing while devices are booked ahead by up to freeBacklog, and as much as a task's own time from
// fullPriceBacklog on.
const (
	freeBacklog      = int64(1500 * time.Millisecond)
	fullPriceBacklog = int64(7500 * time.Millisecond)
)

// Device time on an idle device costs nothing up to the busy share freeBusyShare of the devices. Where all are busy, and
// none is booked ahead, its price is busySharePrice.
const (
	freeBusyShare  = .3
	busySharePrice = .15
)

// maxExpectBacklog is the mean backlog from which on no tasks are expected: tasks then wait longer than loads take, and
// a place that is chosen long before its time is a bad one.
const maxExpectBacklog = int64(3 * time.Second)

// grow makes the search's arrays large enough for the tasks of a job (what is placed together).
func (x *search) grow(j *job) {
	n := len(j.tasks)
	for len(x.currentPlace) < n {
		x.currentPlace, x.currentEnd, x.currentBatch = append(x.currentPlace, -1), append(x.currentEnd, 0), append(x.currentBatch, -1)
		x.bestPlace, x.bestEnd, x.minRemaining = append(x.bestPlace, -1), append(x.bestEnd, 0), append(x.minRemaining, 0)
		x.bestStart, x.currentStart = append(x.bestStart, 0), append(x.currentStart, 0)
		x.candidatePlaces, x.levels = append(x.candidatePlaces, nil), append(x.levels, searchLevel{})
	}
}

// findPlaces searches places for the tasks of a job so that its last end is earliest. The result is in bestPlace,
// bestEnd and bestStart; if there is none, bestLastEnd is farFuture.
func (x *search) findPlaces(now int64, j *job) {
	x.grow(j)
	x.scheduler.grow(j)
	x.scheduler.now = now
	x.scheduler.computeEnds(j, 0)
	x.now, x.bestLastEnd, x.bestEndSum, x.steps, x.endBound = now, farFuture, farFuture, 0, x.scheduler.endBound(j)
	x.ownBatches = x.ownBatches[:0]
	x.setPrice()
	x.prepareTasks(j)
	x.placeFrom(j, 0, 0, 0)
}

// setPrice sets what a second of device time costs, in seconds of a task. A batch that starts where others wait makes
// them wait for all of its time; a task that joins a batch adds only a part of that. The longer devices are booked
// ahead, the more tasks wait. The more devices are busy, the sooner some task will wait: then tasks of a request that
// are ready together share a batch, although each would end a little sooner on a device of its own.
func (x *search) setPrice() {
	x.queuedTimePrice, x.idleTimePrice = 0, 0
	if !x.cluster.options.PriceDeviceTime {
		return
	}
	if excessBusy := x.cluster.busyShare() - freeBusyShare; excessBusy > 0 {
		x.idleTimePrice = int64(1024 * busySharePrice * excessBusy / (1 - freeBusyShare))
	}
	x.queuedTimePrice = max(x.idleTimePrice, min(1024, 1024*(x.cluster.meanBacklog(x.now)-freeBacklog)/(fullPriceBacklog-freeBacklog)))
}

// prepareTasks is called before the search. It takes over the places of placed tasks, lists the candidate places of
// the others, and computes minRemaining, the least time from a task's end to that of the job. It goes backwards,
// because a task's readers come behind it.
func (x *search) prepareTasks(j *job) {
	unplacedTasks := 0
	for t := range j.tasks {
		if j.tasks[t].place < 0 {
			unplacedTasks++
		}
	}
	for t := len(j.tasks) - 1; t >= 0; t-- {
		x.minRemaining[t] = 0
	}
	for t := len(j.tasks) - 1; t >= 0; t-- {
		k := &j.tasks[t]
		if k.place >= 0 {
			x.currentPlace[t], x.currentEnd[t] = k.place, k.end
			continue
		}
		minFromStart := x.minRemaining[t] + scaleTime(x.tables.services[k.service].minTaskTime, k.work)
		for _, in := range j.inputsOf(int32(t)) {
			if in >= 0 {
				x.minRemaining[in] = max(x.minRemaining[in], minFromStart)
			}
		}
		x.listCandidates(int32(t), unplacedTasks)
	}
}

// listCandidates lists the places at which a task could end earliest, sorted, as many as the search may try. The
// number grows with the unplaced tasks, because these may take each other's best places. Width 0 means all.
func (x *search) listCandidates(t int32, unplacedTasks int) {
	places := len(x.cluster.devices)
	maxCandidates := x.width + extraCandidates + unplacedTasks - 1
	if x.width == 0 || maxCandidates > places {
		maxCandidates = places
	}
	candidates := x.candidatePlaces[t][:0]
	earliestEnds := x.scheduler.earliestEnds[int(x.scheduler.rowOf[t])*places:][:places]
	worstEnd := farFuture
	for d, end := range earliestEnds {
		if len(candidates) == maxCandidates && end >= worstEnd || end >= farFuture {
			continue
		}
		if len(candidates) < maxCandidates {
			candidates = append(candidates, 0)
		}
		i := len(candidates) - 1
		for ; i > 0 && earliestEnds[candidates[i-1]] > end; i-- {
			candidates[i] = candidates[i-1]
		}
		candidates[i] = int32(d)
		if len(candidates) == maxCandidates {
			worstEnd = earliestEnds[candidates[maxCandidates-1]]
		}
	}
	x.candidatePlaces[t] = candidates
}

// placeFrom is the recursive search: it tries the cheapest places for task t and, for each, places all later tasks.
// lastEnd is the latest end and endSum the sum of the ends of the tasks placed so far. Branches that cannot end
// earlier than the best schedule are left, as is the search at its bound or after maxSteps.
func (x *search) placeFrom(j *job, t int32, lastEnd, endSum int64) {
	for t < int32(len(j.tasks)) && j.tasks[t].place >= 0 {
		t++
	}

	// All tasks are placed: keep the schedule if it is better.
	if t == int32(len(j.tasks)) {
		if lastEnd < x.bestLastEnd || lastEnd == x.bestLastEnd && endSum < x.bestEndSum {
			x.bestLastEnd, x.bestEndSum = lastEnd, endSum
			copy(x.bestPlace, x.currentPlace)
			copy(x.bestEnd, x.currentEnd)
			copy(x.bestStart, x.currentStart)
		}
		return
	}

	// Otherwise try the cheapest offers of this task, as many as SearchWidth.
	x.steps++
	k := &j.tasks[t]
	level := &x.levels[t]
	x.collectOffers(j, t, level)
	width := max(1, x.width)
	for range min(width, len(level.places)) {
		i := cheapestOffer(level.offers)
		chosen := level.offers[i]
		if chosen.cost >= farFuture || x.bestLastEnd < farFuture && (max(lastEnd, chosen.cost+x.minRemaining[t]) > x.bestLastEnd || x.bestLastEnd <= x.endBound || x.steps > x.maxSteps) {
			return
		}
		level.offers[i].cost = farFuture
		x.currentPlace[t], x.currentEnd[t], x.currentStart[t] = level.places[i], chosen.end, chosen.start

		// Join an own batch, or add one; undo that afterwards.
		if chosen.ownIndex >= 0 {
			before := x.ownBatches[chosen.ownIndex]
			x.ownBatches[chosen.ownIndex].addTask(x.tables, k, &chosen)
			x.placeFrom(j, t+1, max(lastEnd, chosen.cost), endSum+chosen.cost)
			x.ownBatches[chosen.ownIndex] = before
			continue
		}
		x.ownBatches = append(x.ownBatches, x.newJobBatch(level.places[i], k, &chosen))
		x.placeFrom(j, t+1, max(lastEnd, chosen.cost), endSum+chosen.cost)
		x.ownBatches = x.ownBatches[:len(x.ownBatches)-1]
	}
}

// newJobBatch returns the batch of a task that joins none of the job's own batches. It is new, or extends a planned one.
func (x *search) newJobBatch(place int32, k *jobTask, o *offer) jobBatch {
	b := jobBatch{place: place, plannedIndex: o.plannedIndex, service: k.service, size: 1, start: o.start, end: o.end, joinUntil: o.start, work: k.work, recomputeTime: o.recomputeTime, kvTokens: x.tables.tokensOf(k.service, k.work)}
	if o.plannedIndex >= 0 {
		p := &x.cluster.devices[place].plannedBatches[o.plannedIndex]
		b.size, b.kvTokens, b.work = b.size+p.size, b.kvTokens+p.kvTokens, max(b.work, p.work)
		b.start, b.end, b.joinUntil = p.start, max(p.end, o.end), p.joinUntil
	} else if x.tables.isLanguageModel(k.service) {
		b.joinUntil = o.end
	}
	return b
}

// addTask adds a task to a batch that tasks of the job form, as the offer says. Sequences of a language model keep
// such a batch open until its end.
func (b *jobBatch) addTask(tables *deviceTables, k *jobTask, o *offer) {
	b.size++
	b.kvTokens += tables.tokensOf(k.service, k.work)
	b.work, b.end, b.recomputeTime = max(b.work, k.work), max(b.end, o.end), o.recomputeTime
	if tables.isLanguageModel(k.service) && b.plannedIndex < 0 {
		b.joinUntil = b.end
	}
}

// cheapestOffer returns the index of the cheapest offer. Of several, it is the first.
func cheapestOffer(offers []offer) int {
	cheapest := 0
	for i := range offers {
		if offers[i].cost < offers[cheapest].cost {
			cheapest = i
		}
	}
	return cheapest
}
