package drop

import (
	"time"

	"inferplan/policy/flow"
)

// planner is the State Planner (PARD §4): what a module knows of the others. It
// is brought up to date every second; a worker's own queue and batch are looked
// at as they are.
type planner struct {
	*Variant
	opt    Options
	fleet  *fleet
	seen   *Seen
	stride int32   // services: [application*stride + service]
	came   []int64 // by service: tasks in this second, before drops
	load   []loads
	queues []queueing
	waits  []waits
	runs   []time.Duration // by service: of a planned batch
	one    []time.Duration // of a batch of one

	behind []time.Duration // what is left to do behind a module
	alone  []time.Duration // the same with nothing but batches of one

	second  int64
	buffers [][]float64
	lists   [][]time.Duration // scratch of Variant.Waits
	ways    *ways             // nil: of several ways the longest counts
	chances []chance
}

// loads is what decides the order of a module (PARD §4.3).
type loads struct {
	came   [10]float64
	smooth [10]float64
	n      int
	hbf    bool // HBF is in force
}

// queueing is a weighted average over the window: every tenth of a second by its
// age.
type queueing struct {
	sum   []time.Duration
	count []int64
	at    []int64 // which tenth the bucket is of
	mean  time.Duration
}

const tenth = 100 * time.Millisecond

func newPlanner(how *Variant, opt Options, f *fleet) *planner {
	n := len(f.modules)
	s := &planner{Variant: how, opt: opt, fleet: f, seen: NewSeen(n), stride: int32(n), load: make([]loads, n)}
	s.came = make([]int64, n)
	s.runs, s.one = make([]time.Duration, n), make([]time.Duration, n)
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
			longest *= 4 // what is slower stands in the last step
		}
		s.waits = append(s.waits, newWaits(longest))
	}
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

func (s *planner) cell(app int, service int32) int32 { return int32(app)*s.stride + service }

// longest is the longest way from a node to the end, the node left out, in batches of one.
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

// admitted takes in that a task entered a batch after it had queued, and how
// long the batch then forms.
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

// average is the weighted mean over the window up to now.
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

// tick is the work of a second.
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

// catchUp lets the seconds pass in which nothing was to do.
func (s *planner) catchUp(now time.Duration) {
	for n := min(int64(now/time.Second)-s.second, int64(len(s.load[0].came))); n > 0; n-- {
		for m := range s.load {
			s.load[m].take(0)
		}
	}
	s.second = int64(now / time.Second)
}

// take takes in the arrivals of a second.
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

// high says whether HBF is to be in force: the load is above 1 by more than it varies;
// below by more, it is not; else as before.
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
