package workflow

import "time"

// search places a job's tasks depth first where, other than in schedule, tasks of
// the job wait for each other and share batches. It tries the places that the
// rows name first, cuts what cannot beat the best, and stops at the end that the
// rows name for tasks in nobody's way, or after a number of steps.
//
// What it minimises is the end of the last task, then the sum of all ends.
type search struct {
	c     *cluster
	s     *scheduler
	width int // places tried per task; 0: the best of all, and nothing else
	limit int // steps

	now    int64
	names  [][]int32 // places by task, from the rows
	own    []stay    // of the tasks placed so far
	tails  []int64   // by task: least time from its end to that of the last
	place  []int32   // by task, at hand
	end    []int64
	batch  []int32 // of own, that the task at hand is in
	to     []int32 // the best
	toEnd  []int64
	start  []int64 // of the best: when the task begins to run
	from   []int64 // at hand
	best   int64
	sum    int64
	bound  int64
	price  int64 // of device time where others wait, in parts of 1024
	crowd  int64 // of device time that a batch which begins at once would take
	steps  int
	levels []level
}

// level is the scratch of a depth: places with the ends that a task would have.
type level struct {
	places []int32
	offers []offer
	least  []int64 // of their costs, as many as are tried, rising
}

// stay is a batch that tasks of the job would be in.
type stay struct {
	place, planned int32 // planned: of the device's plan; -1: a new one
	service, n     int32
	start, end     int64
	work, extra    int64
	until, kv      int64 // as of a period
}

// steps that a search takes at most, and further places beside its width that the
// rows name.
const (
	maxSteps = 16
	spare    = 1
)

// bookedFree is how far devices are booked ahead up to where their time costs
// nothing, bookedFull from where it costs as much as that of tasks.
const (
	bookedFree = int64(1500 * time.Millisecond)
	bookedFull = int64(7500 * time.Millisecond)
)

// crowdFrom is the share of busy devices from which on device time costs anything,
// crowdFull its price where all are busy and none is booked ahead.
const (
	crowdFrom = .3
	crowdFull = .15
)

// aheadFull is how far devices are booked ahead when nothing is expected any
// more: tasks wait longer than loads take, and a place that is chosen long before
// its time is a bad one.
const aheadFull = int64(3 * time.Second)

func (x *search) fit(j *job) {
	n := len(j.tasks)
	for len(x.place) < n {
		x.place, x.end, x.batch = append(x.place, -1), append(x.end, 0), append(x.batch, -1)
		x.to, x.toEnd, x.tails = append(x.to, -1), append(x.toEnd, 0), append(x.tails, 0)
		x.start, x.from = append(x.start, 0), append(x.from, 0)
		x.names, x.levels = append(x.names, nil), append(x.levels, level{})
	}
}

// run finds places; the result is in to, toEnd and start.
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

// setPrice sets what a second of device time costs, in seconds of a task. A batch
// of its own, begun where others wait, makes them wait for all of its time; who
// joins a batch adds a part of that. The longer devices are booked ahead, the
// more tasks wait. The more of them are busy, the sooner somebody will: then tasks
// of a request that are ready together share a batch, although each would end a
// little sooner on a device of its own.
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

// prepare names the places of each task and works out what follows it at least.
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

// name lists the places with the least f of a task, as many as may be tried.
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

// descend places task t and all behind it. last and sum are of the tasks placed.
func (x *search) descend(j *job, t int32, last, sum int64) {
	for t < int32(len(j.tasks)) && j.tasks[t].place >= 0 {
		t++
	}
	if t == int32(len(j.tasks)) {
		if last < x.best || last == x.best && sum < x.sum {
			x.best, x.sum = last, sum
			copy(x.to, x.place)
			copy(x.toEnd, x.end)
			copy(x.start, x.from)
		}
		return
	}
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

// begin is the batch of a task that joins none of the job's own.
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

// join adds a task to a batch of the job.
func (b *stay) join(q sequences, k *jobTask, o *offer) {
	b.n++
	b.kv += q.tokens(k.service, k.work)
	b.work, b.end, b.extra = max(b.work, k.work), max(b.end, o.end), o.extra
	if q.is(k.service) && b.planned < 0 {
		b.until = b.end
	}
}

// least is the cheapest offer, the earlier one of two.
func least(list []offer) int {
	best := 0
	for i := range list {
		if list[i].cost < list[best].cost {
			best = i
		}
	}
	return best
}
