package workflow

import "slices"

// job is what is known and expected of a request: tasks in an order in which
// every task comes after those that it reads.
type job struct {
	tasks  []jobTask
	inputs []int32 // of all tasks: places in tasks; -1: the client's input
}

type jobTask struct {
	service     int32
	work        int64
	first, last int32 // of inputs
	place       int32 // of a task that has ended or runs; -1: to be chosen
	end         int64 // of such a task
	// Of a task that goes on with the state of a session: what it pays away from it.
	// It is where the task from, of this job, is placed, or at home from homeAt on.
	price  int64 // 0: it goes on with none
	from   int32 // -1: none of this job that is to be placed
	home   int32 // -1: nowhere
	homeAt int64
	extra  int64 // scratch of the search: what it pays at the place at hand
}

func (j *job) reset() { j.tasks, j.inputs = j.tasks[:0], j.inputs[:0] }

// fix adds a task that has its place.
func (j *job) fix(service, place int32, end int64) int32 {
	n := int32(len(j.inputs))
	j.tasks = append(j.tasks, jobTask{service: service, place: place, end: end, first: n, last: n, from: -1, home: -1})
	return int32(len(j.tasks) - 1)
}

// add adds a task to be placed.
func (j *job) add(service int32, work int64, inputs ...int32) int32 {
	n := int32(len(j.inputs))
	j.inputs = append(j.inputs, inputs...)
	j.tasks = append(j.tasks, jobTask{service: service, work: work, place: -1, first: n, last: int32(len(j.inputs)), from: -1, home: -1})
	return int32(len(j.tasks) - 1)
}

func (j *job) inputsOf(t int32) []int32 { return j.inputs[j.tasks[t].first:j.tasks[t].last] }

// scheduler computes f(t, d), the earliest end of task t of a job at place d, where tasks of
// the job do not get into each other's way (equations 1 and 2 of DyOrc). f follows from that
// of the task's inputs. A transfer takes one of three times: none, within a node, across. So
// the earliest arrival at d is a minimum of three numbers, and all f take one pass per task
// over the places. No schedule ends before the latest of the last tasks at its best place: a
// bound, which a schedule reaches where every output has one reader.
//
// It allocates nothing once it has seen the largest job.
type scheduler struct {
	f    *fleet
	rows *rows
	now  int64

	ends    []int64 // f of all tasks: task*places + place
	nodeEnd []int64 // its minimum by node: task*nodes + node
	nodeAt  []int32 // the place of it
	least   []int64 // its minimum
	leastAt []int32
	same    []int32 // earlier task with the same row; else the task itself
	ready   []int64 // by place

	readers []int32 // by task
}

func newScheduler(f *fleet, r *rows) *scheduler {
	return &scheduler{f: f, rows: r, ready: make([]int64, len(f.ids))}
}

// fit makes room for a job.
func (s *scheduler) fit(j *job) {
	n := len(j.tasks)
	places, nodes := len(s.f.ids), len(s.f.nodes)
	if len(s.least) < n {
		s.ends, s.nodeEnd, s.nodeAt = make([]int64, n*places), make([]int64, n*nodes), make([]int32, n*nodes)
		s.least, s.leastAt, s.same, s.readers = make([]int64, n), make([]int32, n), make([]int32, n), make([]int32, n)
	}
	for t := range n {
		s.readers[t] = 0
	}
	for t := range j.tasks {
		for i, in := range j.inputsOf(int32(t)) {
			if in >= 0 && !slices.Contains(j.inputsOf(int32(t))[:i], in) {
				s.readers[in]++
			}
		}
	}
}

// boundOf returns the end that no schedule can beat.
func (s *scheduler) boundOf(j *job) int64 {
	bound := int64(0)
	for t := range j.tasks {
		if s.readers[t] == 0 && j.tasks[t].place < 0 {
			bound = max(bound, s.least[s.same[t]])
		}
	}
	return bound
}

// pass works out f of the tasks from a given one on.
func (s *scheduler) pass(j *job, from int32) {
	for t := from; t < int32(len(j.tasks)); t++ {
		k := &j.tasks[t]
		s.same[t] = t
		switch {
		case k.place >= 0:
			s.least[t], s.leastAt[t] = k.end, k.place
		case t > 0 && s.alike(j, t, t-1):
			s.same[t] = s.same[t-1]
		default:
			s.row(t, k, s.arrivals(j, t))
		}
	}
}

// alike tells whether two tasks ask for the same of the same inputs.
func (s *scheduler) alike(j *job, a, b int32) bool {
	x, y := &j.tasks[a], &j.tasks[b]
	return y.place < 0 && x.service == y.service && x.work == y.work &&
		x.price == y.price && x.from == y.from && x.home == y.home && x.homeAt == y.homeAt && slices.Equal(j.inputsOf(a), j.inputsOf(b))
}

// arrivals works out when a task's inputs are at each place, into ready. It tells
// whether any is later than now.
func (s *scheduler) arrivals(j *job, t int32) bool {
	late := false
	for i, in := range j.inputsOf(t) {
		if in < 0 {
			continue
		}
		k := &j.tasks[in]
		near, far := s.between(&j.tasks[t], k, in)
		if k.place >= 0 {
			if k.end+far <= s.now {
				continue
			}
			late = s.begin(late)
			s.fromPlace(k.place, k.end, k.end+near, k.end+far)
			continue
		}
		own := in == j.tasks[t].from
		if in = s.same[in]; !own && s.seen(j.inputsOf(t)[:i], in) {
			continue
		}
		late = s.begin(late)
		s.fromRow(in, near, far)
	}
	if k := &j.tasks[t]; k.price > 0 && k.from < 0 {
		late = s.begin(late)
		s.fromHome(k)
	}
	return late
}

// between is how long it takes from a task to one that reads it, at another place of
// the node and across. Computing a state anew counts as a way, too: nothing ends
// sooner.
func (s *scheduler) between(to, from *jobTask, in int32) (near, far int64) {
	near, far = s.f.near[from.service], s.f.far[from.service]
	if to.price > 0 && to.from == in {
		t := &s.f.tolls[to.service]
		near, far = max(near, to.price*t.near>>20), max(far, to.price*t.far>>20)
	}
	return near, far
}

// fromHome lets a state arrive that has its place, or is computed anew.
func (s *scheduler) fromHome(k *jobTask) {
	if k.home < 0 {
		for d := range s.ready {
			s.ready[d] = max(s.ready[d], s.now+k.price)
		}
		return
	}
	t, at := &s.f.tolls[k.service], max(s.now, k.homeAt)
	s.fromPlace(k.home, at, at+k.price*t.near>>20, at+k.price*t.far>>20)
}

// seen tells whether an earlier input has the same row.
func (s *scheduler) seen(inputs []int32, row int32) bool {
	for _, in := range inputs {
		if in >= 0 && s.same[in] == row {
			return true
		}
	}
	return false
}

// begin clears the arrivals once.
func (s *scheduler) begin(late bool) bool {
	if !late {
		for d := range s.ready {
			s.ready[d] = s.now
		}
	}
	return true
}

// fromPlace lets an output arrive that is at one place.
func (s *scheduler) fromPlace(place int32, here, near, far int64) {
	own := max(s.ready[place], here)
	node := s.f.nodes[s.f.nodeOf[place]]
	for d := range s.ready[:node.first] {
		s.ready[d] = max(s.ready[d], far)
	}
	in := s.ready[node.first:node.end]
	for d := range in {
		in[d] = max(in[d], near)
	}
	behind := s.ready[node.end:]
	for d := range behind {
		behind[d] = max(behind[d], far)
	}
	s.ready[place] = own
}

// fromRow lets an output arrive whose place is open: from the same place, from the
// best of the node, or from the best of all.
func (s *scheduler) fromRow(t int32, near, far int64) {
	places, nodes := len(s.f.ids), len(s.f.nodes)
	ends := s.ends[int(t)*places:][:places]
	across := s.least[t] + far
	for n, node := range s.f.nodes {
		most := min(across, s.nodeEnd[int(t)*nodes+n]+near)
		f, r := ends[node.first:node.end], s.ready[node.first:node.end]
		r = r[:len(f)]
		for d, end := range f {
			r[d] = max(r[d], min(end, most))
		}
	}
}

// row works out f of a task from its arrivals, with its minima.
func (s *scheduler) row(t int32, k *jobTask, late bool) {
	places, nodes := len(s.f.ids), len(s.f.nodes)
	ends := s.ends[int(t)*places:][:places]
	at := int(k.service) * places
	free, comp := s.rows.free[at:][:places], s.rows.comp[at:][:places]
	switch {
	case !late:
		for d, fr := range free {
			ends[d] = max(fr, s.now) + scaled(comp[d], k.work)
		}
	case k.work == unit:
		ready := s.ready[:places]
		for d, fr := range free {
			ends[d] = max(fr, ready[d]) + comp[d]
		}
	default:
		ready := s.ready[:places]
		for d, fr := range free {
			ends[d] = max(fr, ready[d]) + comp[d]*k.work>>20
		}
	}
	if s.rows.open[k.service] > 0 {
		s.joins(ends, k, late)
	}
	s.least[t] = never
	for n, node := range s.f.nodes {
		least, place := never, node.first
		for d, end := range ends[node.first:node.end] {
			if end < least {
				least, place = end, node.first+int32(d)
			}
		}
		s.nodeEnd[int(t)*nodes+n], s.nodeAt[int(t)*nodes+n] = least, place
		if least < s.least[t] {
			s.least[t], s.leastAt[t] = least, place
		}
	}
}

// joins takes the batches that can be joined into account.
func (s *scheduler) joins(ends []int64, k *jobTask, late bool) {
	at := int(k.service) * len(ends)
	join, joined := s.rows.join[at:][:len(ends)], s.rows.joined[at:][:len(ends)]
	for d, start := range join {
		ready := s.now
		if late {
			ready = s.ready[d]
		}
		if start >= ready {
			ends[d] = min(ends[d], start+scaled(joined[d], k.work))
		}
	}
}
