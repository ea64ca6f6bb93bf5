package drop

import (
	"time"

	"inferplan/policy/flow"
)

// planner is the State Planner (PARD §4): what a module knows of the others. It is updated every second. A worker's own
// queue and batch are read as they are.
type planner struct {
	*Variant
	opt    Options
	fleet  *fleet
	seen   *Seen
	stride int32   // number of services, for arrays indexed [application*stride + service]
	came   []int64 // by service: tasks revealed in this second, dropped ones included
	load   []loads
	queues []queueing
	waits  []waits
	runs   []time.Duration // by service: time of a planned batch
	one    []time.Duration // by service: time of a batch of one

	behind []time.Duration // by cell: estimated time downstream of a module
	alone  []time.Duration // by cell: the same, with nothing but batches of one

	second  int64             // the second of the estimates
	buffers [][]float64       // scratch: distributions of sums of waits
	lists   [][]time.Duration // scratch of Variant.WaitSumQuantile
	ways    *ways             // nil if the longest path counts
	chances []chance          // scratch
}

// moduleLoad decides the order of a module's queue by its load (PARD §4.3).
type loads struct {
	came   [10]float64 // tasks of the latest seconds, a ring
	smooth [10]float64 // moving averages of them
	n      int         // seconds so far
	hbf    bool        // highest budget first is in force
}

// queueTimes is the average queueing time over the window, weighted by age, in buckets of a tenth of a second.
type queueing struct {
	sum   []time.Duration
	count []int64
	at    []int64 // the tenth of a second that the bucket is of
	mean  time.Duration
}

// bucketWidth is the width of the buckets of queueTimes.
const tenth = 100 * time.Millisecond

// newPlanner returns a planner for a fleet, with first estimates.
func newPlanner(how *Variant, opt Options, f *fleet) *planner {
	n := len(f.modules)
	s := &planner{Variant: how, opt: opt, fleet: f, seen: NewSeen(n), stride: int32(n), load: make([]loads, n)}
	s.came = make([]int64, n)
	s.runs, s.one = make([]time.Duration, n), make([]time.Duration, n)

	// Batch times and empty statistics of each module.
	for m := range n {
		buckets := int(opt.Window / tenth)
		s.queues = append(s.queues, queueing{sum: make([]time.Duration, buckets), count: make([]int64, buckets), at: make([]int64, buckets)})
		for i, id := range f.modules[m].workers {
			w := &f.workers[id]
			s.runs[m] = max(s.runs[m], w.full)
			if i == 0 || w.infer[0] < s.one[m] {
				s.one[m] = w.infer[0]
			}
		}
		longest := s.runs[m]
		if opt.Learn {
			longest *= 4 // longer waits count in the last bucket
		}
		s.waits = append(s.waits, newWaits(longest))
	}

	// Bounds for tasks alone in every batch.
	apps := f.own.Apps
	cells := len(apps) * n
	s.behind, s.alone = make([]time.Duration, cells), make([]time.Duration, cells)
	for a := range apps {
		app := &apps[a]
		for i := range app.Nodes {
			at := s.cell(a, app.Nodes[i].Service)
			s.alone[at] = max(s.alone[at], s.longest(app, int32(i)))
		}
	}
	if opt.Paths > 0 {
		s.ways = newWays(f.own)
	}
	s.estimate()
	return s
}

// cellOf returns the index of an application's service in arrays by cell.
func (s *planner) cell(app int, service int32) int32 { return int32(app)*s.stride + service }

// longestSolo returns the time of the longest path behind a node, in batches of one.
func (s *planner) longest(app *flow.App, node int32) time.Duration {
	most := time.Duration(0)
	for _, path := range app.Nodes[node].Paths {
		sum := time.Duration(0)
		for _, n := range path {
			sum += s.one[app.Nodes[n].Service]
		}
		most = max(most, sum)
	}
	return most
}

// recordEntry records that a task has entered a batch after queueing, and how long it waits for the batch to start.
func (s *planner) admitted(m int32, now, queued, wait time.Duration) {
	q := &s.queues[m]
	t := int64(now / tenth)
	i := int(t % int64(len(q.at)))
	if q.at[i] != t {
		q.at[i], q.sum[i], q.count[i] = t, 0, 0
	}
	q.sum[i] += queued
	q.count[i]++
	s.waits[m].add(wait)
	if s.Admitted != nil {
		s.Admitted(m, now, queued)
	}
	s.seen.admitted(m, queued, wait)
}

// meanAt returns the weighted mean over the window that ends now. The weight falls linearly with age.
func (q *queueing) average(now time.Duration) time.Duration {
	window := time.Duration(len(q.at)) * tenth
	sum, weights := 0.0, 0.0
	for i, t := range q.at {
		age := now - time.Duration(t)*tenth - tenth/2
		if q.count[i] == 0 || age > window {
			continue
		}
		w := 1 - max(0, age).Seconds()/window.Seconds()
		sum += w * float64(q.sum[i])
		weights += w * float64(q.count[i])
	}
	if weights == 0 {
		return 0
	}
	return time.Duration(sum / weights)
}

// tickSecond updates all estimates; it runs once per second.
func (s *planner) tick(now time.Duration) {
	s.second = int64(now / time.Second)
	for m := range s.load {
		l := &s.load[m]
		l.take(float64(s.came[m]))
		s.came[m] = 0
		s.queues[m].mean = s.queues[m].average(now)
		if hbf := l.high(s.fleet.modules[m].capacity, s.Sudden); !s.Feas && s.High == nil && hbf != l.hbf {
			l.hbf = hbf
			s.seen.changed(now, int32(m), hbf)
		}
	}
	if s.Second != nil {
		s.Second(now, s.runs)
	}
	s.fleet.retime(s)
	s.estimate()
}

// skipSeconds lets the seconds pass in which there was nothing to do.
func (s *planner) catchUp(now time.Duration) {
	for n := min(int64(now/time.Second)-s.second, int64(len(s.load[0].came))); n > 0; n-- {
		for m := range s.load {
			s.load[m].take(0)
		}
	}
	s.second = int64(now / time.Second)
}

// addArrivals adds the arrivals of a second.
func (l *loads) take(came float64) {
	at := l.n % len(l.came)
	l.came[at] = came
	l.n++
	sum, n := 0.0, min(l.n, 5)
	for i := range n {
		sum += l.came[(l.n-1-i)%len(l.came)]
	}
	l.smooth[at] = sum / float64(n)
}

// wantsHighestFirst returns true if the highest budget is to be served first: the load is above 1 by more than its
// variation. If it is below 1 by more than that, it returns false. In between the order stays.
func (l *loads) high(capacity float64, sudden bool) bool {
	if capacity == 0 {
		return l.hbf
	}
	off, sum := 0.0, 0.0
	for i := range min(l.n, len(l.came)) {
		off += max(l.came[i]-l.smooth[i], l.smooth[i]-l.came[i])
		sum += l.came[i]
	}
	vary := 0.0
	if sum > 0 && !sudden {
		vary = off / sum
	}
	switch mu := l.came[(l.n-1)%len(l.came)] / capacity; {
	case mu > 1+vary:
		return true
	case mu < 1-vary:
		return false
	}
	return l.hbf
}
