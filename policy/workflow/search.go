package workflow

import "time"

// search places the tasks of a job depth first. Unlike in the scheduler, tasks of the job wait for each other and share
// batches. It tries the candidate places in the order of their offers, prunes what cannot beat the best schedule, and
// stops when a schedule reaches the scheduler's bound, or after a number of steps.
//
// It minimises the end of the last task, and then the sum of all ends. Ends count with their costs (setPrice).
type search struct {
	c     *cluster
	s     *scheduler
	width int // places tried per task; 0 tries only the best one of all
	limit int // bound on the steps

	now    int64
	names  [][]int32 // by task: candidate places, by rising f
	own    []stay    // batches of the tasks placed so far
	tails  []int64   // by task: least time from its end to that of the last task
	place  []int32   // by task: its place in the schedule under construction
	end    []int64   // by task: its end in that schedule
	batch  []int32   // by task: its batch in that schedule
	to     []int32   // by task: its place in the best schedule
	toEnd  []int64   // by task: its end in the best schedule
	start  []int64   // by task: its start in the best schedule
	from   []int64   // by task: its start in the schedule under construction
	best   int64     // end of the best schedule; farFuture if there is none
	sum    int64     // sum of its ends
	bound  int64     // no schedule ends earlier
	price  int64     // price of device time where others wait, in 1/1024
	crowd  int64     // price of device time on an idle device, in 1/1024
	steps  int
	levels []level
}

// searchLevel is the scratch memory of one depth of the search: places with their offers to the task.
type level struct {
	places []int32
	offers []offer
	least  []int64 // the lowest costs of the offers, rising, as many as are tried
}

// jobBatch is a batch that tasks of the job would be in.
type stay struct {
	place, planned int32 // its place, and the batch of the device's plan that it extends; -1 if it is new
	service, n     int32 // service and number of tasks
	start, end     int64
	work, extra    int64
	until, kv      int64 // as in plannedBatch
}

// Bounds of the search: its steps, and the candidate places of a task beyond SearchWidth.
const (
	maxSteps = 16
	spare    = 1
)

// Device time costs nothing while devices are booked ahead by up to freeBacklog, and as much as a task's own time from
// fullPriceBacklog on.
const (
	bookedFree = int64(1500 * time.Millisecond)
	bookedFull = int64(7500 * time.Millisecond)
)

// Device time on an idle device costs nothing up to the busy share freeBusyShare of the devices. Where all are busy, and
// none is booked ahead, its price is busySharePrice.
const (
	crowdFrom = .3
	crowdFull = .15
)

// maxExpectBacklog is the mean backlog from which on no tasks are expected: tasks then wait longer than loads take, and
// a place that is chosen long before its time is a bad one.
const aheadFull = int64(3 * time.Second)

// grow makes the arrays large enough for a job.
func (x *search) fit(j *job) {
	n := len(j.tasks)
	for len(x.place) < n {
		x.place, x.end, x.batch = append(x.place, -1), append(x.end, 0), append(x.batch, -1)
		x.to, x.toEnd, x.tails = append(x.to, -1), append(x.toEnd, 0), append(x.tails, 0)
		x.start, x.from = append(x.start, 0), append(x.from, 0)
		x.names, x.levels = append(x.names, nil), append(x.levels, level{})
	}
}

// findPlaces searches places for the tasks of a job. The result is in bestPlace, bestEnd and bestStart.
func (x *search) run(now int64, j *job) {
	x.fit(j)
	x.s.fit(j)
	x.s.now = now
	x.s.pass(j, 0)
	x.now, x.best, x.sum, x.steps, x.bound = now, never, never, 0, x.s.boundOf(j)
	x.own = x.own[:0]
	x.setPrice()
	x.prepare(j)
	x.descend(j, 0, 0, 0)
}

// setPrice sets what a second of device time costs, in seconds of a task. A batch that starts where others wait makes
// them wait for all of its time; a task that joins a batch adds only a part of that. The longer devices are booked
// ahead, the more tasks wait. The more devices are busy, the sooner some task will wait: then tasks of a request that
// are ready together share a batch, although each would end a little sooner on a device of its own.
func (x *search) setPrice() {
	x.price, x.crowd = 0, 0
	if !x.c.opt.Thrift {
		return
	}
	if over := float64(x.c.running)/float64(len(x.c.devices)) - crowdFrom; over > 0 {
		x.crowd = int64(1024 * crowdFull * over / (1 - crowdFrom))
	}
	x.price = max(x.crowd, min(1024, 1024*(x.c.booked(x.now)-bookedFree)/(bookedFull-bookedFree)))
}

// prepareTasks lists the candidate places of each task, and computes the least time from its end to that of the job.
func (x *search) prepare(j *job) {
	free := 0
	for t := range j.tasks {
		if j.tasks[t].place < 0 {
			free++
		}
	}
	for t := len(j.tasks) - 1; t >= 0; t-- {
		x.tails[t] = 0
	}
	for t := len(j.tasks) - 1; t >= 0; t-- {
		k := &j.tasks[t]
		if k.place >= 0 {
			x.place[t], x.end[t] = k.place, k.end
			continue
		}
		least := x.tails[t] + scaled(x.c.fleet.services[k.service].least, k.work)
		for _, in := range j.inputsOf(int32(t)) {
			if in >= 0 {
				x.tails[in] = max(x.tails[in], least)
			}
		}
		x.name(int32(t), free)
	}
}

// listCandidates lists the places with the least f for a task, sorted, as many as the search may try.
func (x *search) name(t int32, free int) {
	places := len(x.c.devices)
	most := x.width + spare + free - 1
	if x.width == 0 || most > places {
		most = places
	}
	list := x.names[t][:0]
	ends := x.s.ends[int(x.s.same[t])*places:][:places]
	worst := never
	for d, end := range ends {
		if len(list) == most && end >= worst || end >= never {
			continue
		}
		if len(list) < most {
			list = append(list, 0)
		}
		i := len(list) - 1
		for ; i > 0 && ends[list[i-1]] > end; i-- {
			list[i] = list[i-1]
		}
		list[i] = int32(d)
		if len(list) == most {
			worst = ends[list[most-1]]
		}
	}
	x.names[t] = list
}

// placeFrom places task t and all later ones. lastEnd and endSum are of the tasks placed so far.
func (x *search) descend(j *job, t int32, last, sum int64) {
	for t < int32(len(j.tasks)) && j.tasks[t].place >= 0 {
		t++
	}

	// All tasks are placed: keep the schedule if it is better.
	if t == int32(len(j.tasks)) {
		if last < x.best || last == x.best && sum < x.sum {
			x.best, x.sum = last, sum
			copy(x.to, x.place)
			copy(x.toEnd, x.end)
			copy(x.start, x.from)
		}
		return
	}

	// Otherwise try the cheapest offers of this task, as many as SearchWidth.
	x.steps++
	k := &j.tasks[t]
	l := &x.levels[t]
	x.offers(j, t, l)
	width := max(1, x.width)
	for range min(width, len(l.places)) {
		i := least(l.offers)
		o := l.offers[i]
		if o.cost >= never || x.best < never && (max(last, o.cost+x.tails[t]) > x.best || x.best <= x.bound || x.steps > x.limit) {
			return
		}
		l.offers[i].cost = never
		x.place[t], x.end[t], x.from[t] = l.places[i], o.end, o.start

		// Join an own batch, or add one; undo that afterwards.
		if o.own >= 0 {
			b := x.own[o.own]
			x.own[o.own].join(x.c.sequences(), k, &o)
			x.descend(j, t+1, max(last, o.cost), sum+o.cost)
			x.own[o.own] = b
			continue
		}
		x.own = append(x.own, x.begin(l.places[i], k, &o))
		x.descend(j, t+1, max(last, o.cost), sum+o.cost)
		x.own = x.own[:len(x.own)-1]
	}
}

// newJobBatch returns the batch of a task that joins none of the job's own batches. It is new, or extends a planned one.
func (x *search) begin(place int32, k *jobTask, o *offer) stay {
	q := x.c.sequences()
	b := stay{place: place, planned: o.planned, service: k.service, n: 1, start: o.start, end: o.end, until: o.start, work: k.work, extra: o.extra, kv: q.tokens(k.service, k.work)}
	if o.planned >= 0 {
		p := &x.c.devices[place].plan[o.planned]
		b.n, b.kv, b.work = b.n+p.n, b.kv+p.kv, max(b.work, p.work)
		b.start, b.end, b.until = p.start, max(p.end, o.end), p.until
	} else if q.is(k.service) {
		b.until = o.end
	}
	return b
}

// addTask adds a task to a batch of the job.
func (b *stay) join(q sequences, k *jobTask, o *offer) {
	b.n++
	b.kv += q.tokens(k.service, k.work)
	b.work, b.end, b.extra = max(b.work, k.work), max(b.end, o.end), o.extra
	if q.is(k.service) && b.planned < 0 {
		b.until = b.end
	}
}

// cheapestOffer returns the index of the cheapest offer. Of several, it is the first.
func least(list []offer) int {
	best := 0
	for i := range list {
		if list[i].cost < list[best].cost {
			best = i
		}
	}
	return best
}
