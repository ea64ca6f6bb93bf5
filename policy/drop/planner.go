package drop

import (
	"time"

	"inferplan/policy/flow"
)

// planner is the State Planner (PARD §4): what a module knows of the others. It is updated every second. A worker's own
// queue and batch are read as they are.
type planner struct {
	variant     *Variant
	options     Options
	workers     *workerFleet
	statistics  *RunStatistics
	stride      int32   // number of services, for arrays indexed [application*stride + service]
	arrivals    []int64 // by service: tasks revealed in this second, dropped ones included
	moduleLoads []moduleLoad
	queueTimes  []queueTimes
	batchWaits  []waitSamples
	batchTimes  []time.Duration // by service: time of a planned batch
	soloTimes   []time.Duration // by service: time of a batch of one

	downstream     []time.Duration // by cell: estimated time downstream of a module
	downstreamSolo []time.Duration // by cell: the same, with nothing but batches of one

	second      int64             // the second of the estimates
	buffers     [][]float64       // scratch: distributions of sums of waits
	waitLists   [][]time.Duration // scratch of Variant.WaitSumQuantile
	pathShares  *pathShares       // nil if the longest path counts
	pathChances []pathChance      // scratch
}

// moduleLoad decides the order of a module's queue by its load (PARD §4.3).
type moduleLoad struct {
	arrivals     [10]float64 // tasks of the latest seconds, a ring
	smoothed     [10]float64 // moving averages of them
	seconds      int         // seconds so far
	highestFirst bool        // highest budget first is in force
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

// newPlanner returns the State Planner, which estimates the time downstream of each module, with first estimates
// from the planned times. The estimates in batches of one are bounds: no request is faster.
func newPlanner(variant *Variant, opt Options, f *workerFleet) *planner {
	n := len(f.modules)
	s := &planner{variant: variant, options: opt, workers: f, statistics: NewRunStatistics(n), stride: int32(n), moduleLoads: make([]moduleLoad, n)}
	s.arrivals = make([]int64, n)
	s.batchTimes, s.soloTimes = make([]time.Duration, n), make([]time.Duration, n)

	// Batch times and empty statistics of each module.
	for m := range n {
		buckets := int(opt.Window / bucketWidth)
		s.queueTimes = append(s.queueTimes, queueTimes{sums: make([]time.Duration, buckets), counts: make([]int64, buckets), tenths: make([]int64, buckets)})
		for i, id := range f.modules[m].workers {
			w := &f.workers[id]
			s.batchTimes[m] = max(s.batchTimes[m], w.fullBatchTime)
			if i == 0 || w.batchTimes[0] < s.soloTimes[m] {
				s.soloTimes[m] = w.batchTimes[0]
			}
		}
		longest := s.batchTimes[m]
		if opt.LearnSpeeds {
			longest *= 4 // longer waits count in the last bucket
		}
		s.batchWaits = append(s.batchWaits, newWaitSamples(longest))
	}

	// Bounds for tasks alone in every batch.
	apps := f.graphTables.Apps
	cells := len(apps) * n
	s.downstream, s.downstreamSolo = make([]time.Duration, cells), make([]time.Duration, cells)
	for a := range apps {
		app := &apps[a]
		for i := range app.Nodes {
			cell := s.cellOf(a, app.Nodes[i].Service)
			s.downstreamSolo[cell] = max(s.downstreamSolo[cell], s.longestSolo(app, int32(i)))
		}
	}
	if opt.MinPathShare > 0 {
		s.pathShares = newPathShares(f.graphTables)
	}
	s.estimateDownstream()
	return s
}

// cellOf returns the index of an application's service in arrays by cell.
func (s *planner) cellOf(app int, service int32) int32 { return int32(app)*s.stride + service }

// longestSolo returns the time of the longest path behind a node, in batches of one.
func (s *planner) longestSolo(app *flow.Application, node int32) time.Duration {
	maxSum := time.Duration(0)
	for _, path := range app.Nodes[node].Paths {
		sum := time.Duration(0)
		for _, n := range path {
			sum += s.soloTimes[app.Nodes[n].Service]
		}
		maxSum = max(maxSum, sum)
	}
	return maxSum
}

// recordEntry records that a task has entered a batch after queueing, and how long it waits for the batch to start.
func (s *planner) recordEntry(m int32, now, queueTime, wait time.Duration) {
	q := &s.queueTimes[m]
	t := int64(now / bucketWidth)
	i := int(t % int64(len(q.tenths)))
	if q.tenths[i] != t {
		q.tenths[i], q.sums[i], q.counts[i] = t, 0, 0
	}
	q.sums[i] += queueTime
	q.counts[i]++
	s.batchWaits[m].add(wait)
	if s.variant.TaskEntered != nil {
		s.variant.TaskEntered(m, now, queueTime)
	}
	s.statistics.recordEntry(m, queueTime, wait)
}

// meanAt returns the weighted mean of queueing times over the window that ends now. It is kept in buckets, and the
// weight falls linearly with their age.
func (q *queueTimes) meanAt(now time.Duration) time.Duration {
	window := time.Duration(len(q.tenths)) * bucketWidth
	sum, weights := 0.0, 0.0
	for i, t := range q.tenths {
		age := now - time.Duration(t)*bucketWidth - bucketWidth/2
		if q.counts[i] == 0 || age > window {
			continue
		}
		w := 1 - max(0, age).Seconds()/window.Seconds()
		sum += w * float64(q.sums[i])
		weights += w * float64(q.counts[i])
	}
	if weights == 0 {
		return 0
	}
	return time.Duration(sum / weights)
}

// tickSecond updates all estimates once per second: arrivals, queueing times, the order of each module's queue,
// batch times and the times downstream.
func (s *planner) tickSecond(now time.Duration) {
	s.second = int64(now / time.Second)
	for m := range s.moduleLoads {
		l := &s.moduleLoads[m]
		l.addArrivals(float64(s.arrivals[m]))
		s.arrivals[m] = 0
		s.queueTimes[m].mean = s.queueTimes[m].meanAt(now)
		if hbf := l.wantsHighestFirst(s.workers.modules[m].capacity, s.variant.ImmediateMode); !s.variant.IsFeas && s.variant.HighestFirst == nil && hbf != l.highestFirst {
			l.highestFirst = hbf
			s.statistics.recordOrderChange(now, int32(m), hbf)
		}
	}
	if s.variant.EverySecond != nil {
		s.variant.EverySecond(now, s.batchTimes)
	}
	s.workers.updateBatchTimes(s)
	s.estimateDownstream()
}

// skipSeconds lets the seconds pass in which there was nothing to do.
func (s *planner) skipSeconds(now time.Duration) {
	for seconds := min(int64(now/time.Second)-s.second, int64(len(s.moduleLoads[0].arrivals))); seconds > 0; seconds-- {
		for m := range s.moduleLoads {
			s.moduleLoads[m].addArrivals(0)
		}
	}
	s.second = int64(now / time.Second)
}

// addArrivals adds the arrivals of a second to the last seconds, and smooths them by the mean over up to five
// seconds.
func (l *moduleLoad) addArrivals(tasks float64) {
	index := l.seconds % len(l.arrivals)
	l.arrivals[index] = tasks
	l.seconds++
	sum, n := 0.0, min(l.seconds, 5)
	for i := range n {
		sum += l.arrivals[(l.seconds-1-i)%len(l.arrivals)]
	}
	l.smoothed[index] = sum / float64(n)
}

// wantsHighestFirst returns whether a module serves the highest budget (time left to the deadline) first: true if
// its load, the arrivals of the last second over the capacity, is above 1 by more than its usual variation, false
// if it is below 1 by more than that. In between the order stays, so that it does not change back and forth.
func (l *moduleLoad) wantsHighestFirst(capacity float64, immediate bool) bool {
	if capacity == 0 {
		return l.highestFirst
	}
	deviation, sum := 0.0, 0.0
	for i := range min(l.seconds, len(l.arrivals)) {
		deviation += max(l.arrivals[i]-l.smoothed[i], l.smoothed[i]-l.arrivals[i])
		sum += l.arrivals[i]
	}
	variation := 0.0
	if sum > 0 && !immediate {
		variation = deviation / sum
	}
	switch load := l.arrivals[(l.seconds-1)%len(l.arrivals)] / capacity; {
	case load > 1+variation:
		return true
	case load < 1-variation:
		return false
	}
	return l.highestFirst
}
