package drop

import "time"

// planner is the State Planner (PARD §4): what a module knows of the others, updated every second. A worker's own
// queue and batch are read as they are. A cell is a service of an application: application*stride + service.
type planner struct {
	variant     *Variant
	options     Options
	workers     *workerFleet
	statistics  *RunStatistics
	stride      int32        // number of services, for arrays indexed [application*stride + service]
	arrivals    []int64      // by service: tasks revealed in this second, dropped ones included
	entryLoad   entryLoad    // of all modules, by the arrivals at the entry
	moduleLoads []moduleLoad // by service; likewise queueTimes and batchWaits
	queueTimes  []queueTimes
	batchWaits  []waitSamples
	batchTimes  []time.Duration // by service: time of a planned batch
	soloTimes   []time.Duration // by service: time of a batch of one

	downstream     []time.Duration // by cell: estimated time downstream of a module
	downstreamSolo []time.Duration // by cell: the same, with nothing but batches of one

	second       int64             // the second of the run in which the estimates were made
	waitQuantile float64           // of the sums of waits for batches that counts now
	waitSums     [][]float64       // scratch: distributions of sums of waits
	waitLists    [][]time.Duration // scratch of Variant.WaitSumQuantile
	pathShares   *pathShares       // nil if the longest path counts
	pathChances  []pathChance      // scratch
}

// Lengths, in seconds, of what moduleLoad remembers of arrivals, and of its moving averages.
const (
	rememberedSeconds = 10
	smoothingSeconds  = 5
)

// moduleLoad decides the order of a module's queue by the module's load (PARD §4.3): the arrivals of tasks over the
// capacity of its workers.
type moduleLoad struct {
	arrivals     [rememberedSeconds]float64 // tasks of the latest seconds, a ring
	smoothed     [rememberedSeconds]float64 // moving averages of them
	seconds      int                        // seconds so far
	highestFirst bool                       // highest budget first is in force
}

// queueTimes is the average queueing time over the window, weighted by age, in buckets of a tenth of a second.
type queueTimes struct {
	sums   []time.Duration
	counts []int64
	tenths []int64 // the tenth of a second that the bucket is of
	mean   time.Duration
}

// bucketWidth is the width of the buckets of queueTimes.
const bucketWidth = 100 * time.Millisecond

// maxLearntFactor is by how much measured batches, and the waits for them, may exceed the planned batch time, for the
// length of the histogram of waits. Longer waits count in its last bucket.
const maxLearntFactor = 4

// newPlanner returns the State Planner (PARD §4), which estimates for each module the time downstream: what a request
// needs for the modules behind it. The first estimates are made from the planned times. Estimates are by cell: a pair of
// an application and a module, numbered application by application. It also computes downstreamSolo, the time downstream
// if every module runs the request in a batch of one: no request is faster.
func newPlanner(variant *Variant, options Options, fleet *workerFleet) *planner {
	modules := len(fleet.modules)
	planner := &planner{
		variant: variant, options: options, workers: fleet, statistics: newRunStatistics(modules), stride: int32(modules),
		entryLoad:   entryLoad{workers: fleet, requests: make([][loadSeconds]float64, len(fleet.graphTables.Apps))},
		moduleLoads: make([]moduleLoad, modules), arrivals: make([]int64, modules), batchTimes: make([]time.Duration, modules), soloTimes: make([]time.Duration, modules),
	}

	// Set the batch times of each module (the longest of a full batch and the shortest of a batch of one, over its workers),
	// and make its empty statistics. A wait for a batch is usually no longer than a batch takes.
	buckets := int(options.Window / bucketWidth)
	for module := range modules {
		planner.queueTimes = append(planner.queueTimes, queueTimes{sums: make([]time.Duration, buckets), counts: make([]int64, buckets), tenths: make([]int64, buckets)})
		planner.batchTimes[module], planner.soloTimes[module] = fleet.batchTimesOf(module)
		longestWait := planner.batchTimes[module]
		if options.LearnSpeeds {
			longestWait *= maxLearntFactor
		}
		planner.batchWaits = append(planner.batchWaits, newWaitSamples(longestWait))
	}

	// Compute the times downstream in batches of one. A module that stands at several nodes of an application has the largest
	// of theirs.
	apps := fleet.graphTables.Apps
	cells := len(apps) * modules
	planner.downstream, planner.downstreamSolo = make([]time.Duration, cells), make([]time.Duration, cells)
	for appIndex := range apps {
		app := &apps[appIndex]
		for index := range app.Nodes {
			cell := planner.cellOf(appIndex, app.Nodes[index].Service)
			longest := app.Nodes[index].LongestTime(func(node int32) time.Duration { return planner.soloTimes[app.Nodes[node].Service] })
			planner.downstreamSolo[cell] = max(planner.downstreamSolo[cell], longest)
		}
	}
	if options.MinPathShare > 0 {
		planner.pathShares = newPathShares(fleet.graphTables)
	}
	planner.estimateDownstream()
	return planner
}

// cellOf returns the index of a service of an application in arrays by cell, such as downstream.
func (s *planner) cellOf(app int, service int32) int32 { return int32(app)*s.stride + service }

// recordEntry records that a task of a module enters a batch now, after it has queued for queueTime, and that it waits
// until the batch starts. Queueing times are summed in a ring of buckets of a tenth of a second; a bucket of an earlier
// round is emptied first. Waits go into the samples of the module.
func (s *planner) recordEntry(module int32, now, queueTime, wait time.Duration) {
	times := &s.queueTimes[module]
	tenth := int64(now / bucketWidth)
	bucket := int(tenth % int64(len(times.tenths)))
	if times.tenths[bucket] != tenth {
		times.tenths[bucket], times.sums[bucket], times.counts[bucket] = tenth, 0, 0
	}
	times.sums[bucket] += queueTime
	times.counts[bucket]++
	s.batchWaits[module].add(wait)
	if s.variant.TaskEntered != nil {
		s.variant.TaskEntered(module, now, queueTime)
	}
	s.statistics.recordEntry(module, queueTime, wait)
}

// meanAt returns the weighted mean of a module's queueing times over the window that ends now, 0 without any. The times
// are in buckets of a tenth of a second, and the weight of each falls linearly with its age. tenths[i] is the number of
// the tenth of a second, from the start of the run, in which the times of bucket i were recorded.
func (times *queueTimes) meanAt(now time.Duration) time.Duration {
	window := time.Duration(len(times.tenths)) * bucketWidth
	sum, weights := 0.0, 0.0
	for bucket, tenth := range times.tenths {
		age := now - time.Duration(tenth)*bucketWidth - bucketWidth/2
		if times.counts[bucket] == 0 || age > window {
			continue
		}
		weight := 1 - max(0, age).Seconds()/window.Seconds()
		sum += weight * float64(times.sums[bucket])
		weights += weight * float64(times.counts[bucket])
	}
	if weights == 0 {
		return 0
	}
	return time.Duration(sum / weights)
}

// tickSecond updates all estimates, once per second: arrivals, queueing times, the order of each module's queue,
// batch times and the times downstream.
func (s *planner) tickSecond(now time.Duration) {
	s.second = int64(now / time.Second)

	// Update the load, the queueing time and the order of each module. The order follows the load in pard alone: feas counts
	// its queues, and a variant may have a fixed one.
	for module := range s.moduleLoads {
		load := &s.moduleLoads[module]
		load.addArrivals(float64(s.arrivals[module]))
		s.arrivals[module] = 0
		s.queueTimes[module].mean = s.queueTimes[module].meanAt(now)
		followsLoad := !s.variant.IsFeas && s.variant.HighestFirst == nil
		highestFirst := load.wantsHighestFirst(s.workers.modules[module].capacity, s.variant.ImmediateMode)
		if followsLoad && highestFirst != load.highestFirst {
			load.highestFirst = highestFirst
			s.statistics.recordOrderChange(now, int32(module), highestFirst)
		}
	}

	// Update the load, the batch times, and the times downstream, which depend on both.
	s.entryLoad.addSecond()
	if s.variant.EverySecond != nil {
		s.variant.EverySecond(now, s.batchTimes)
	}
	s.workers.updateBatchTimes(s)
	s.estimateDownstream()
}

// skipSeconds is called when the timer of seconds starts again. It counts the seconds up to now in which there was
// nothing to do as seconds without arrivals, at most as many as are remembered.
func (s *planner) skipSeconds(now time.Duration) {
	idleSeconds := min(int64(now/time.Second)-s.second, int64(len(s.moduleLoads[0].arrivals)))
	for ; idleSeconds > 0; idleSeconds-- {
		for module := range s.moduleLoads {
			s.moduleLoads[module].addArrivals(0)
		}
		s.entryLoad.addSecond()
	}
	s.second = int64(now / time.Second)
}

// addArrivals adds the number of a module's tasks in a second to the rings of the last seconds: the number itself, and its
// moving average, the mean over up to smoothingSeconds seconds.
func (l *moduleLoad) addArrivals(tasks float64) {
	index := l.seconds % len(l.arrivals)
	l.arrivals[index] = tasks
	l.seconds++
	sum, averagedSeconds := 0.0, min(l.seconds, smoothingSeconds)
	for secondsBack := range averagedSeconds {
		sum += l.arrivals[(l.seconds-1-secondsBack)%len(l.arrivals)]
	}
	l.smoothed[index] = sum / float64(averagedSeconds)
}

// wantsHighestFirst returns whether a module with a capacity (tasks per second) serves the highest budget (time left
// to the deadline) first: true if its load, the arrivals of the last second over the capacity, is above 1 by more
// than its usual variation, false if it is below 1 by more than that. In between the order stays, so that it does not
// change back and forth. With `immediate` the variation counts as 0.
func (l *moduleLoad) wantsHighestFirst(capacity float64, immediate bool) bool {
	if capacity == 0 {
		return l.highestFirst
	}

	// Compute how much the arrivals usually vary.
	deviation, sum := 0.0, 0.0
	for i := range min(l.seconds, len(l.arrivals)) {
		deviation += max(l.arrivals[i]-l.smoothed[i], l.smoothed[i]-l.arrivals[i])
		sum += l.arrivals[i]
	}
	variation := 0.0
	if sum > 0 && !immediate {
		variation = deviation / sum
	}

	// Change the order only if the load is off by more than that.
	switch load := l.arrivals[(l.seconds-1)%len(l.arrivals)] / capacity; {
	case load > 1+variation:
		return true
	case load < 1-variation:
		return false
	}
	return l.highestFirst
}
