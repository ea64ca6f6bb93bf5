package workflow

import "slices"

// job holds the known and the expected tasks of a request, in an order in which every task comes after its inputs.
type job struct {
	tasks  []jobTask
	inputs []int32 // inputs of all tasks, as indexes in tasks; -1 stands for the client's input
}

// jobTask is a task of a job.
type jobTask struct {
	service     int32
	work        int64
	first, last int32 // its range in job.inputs
	place       int32 // place of a task that runs or has ended; -1 if the search chooses it
	end         int64 // end of such a task
	// The next fields are of a task that continues a session state.
	price  int64 // time in ns to recompute the session state that it continues; 0 if none
	from   int32 // task of this job that leaves the state, if that is yet to be placed; -1 if none
	home   int32 // otherwise the place of the state; -1 if it is nowhere
	homeAt int64 // when the state is there
	extra  int64 // scratch of the search: time added at the place under consideration
}

func (j *job) reset() { j.tasks, j.inputs = j.tasks[:0], j.inputs[:0] }

// addPlaced adds a task that has its place, and returns its index.
func (j *job) fix(service, place int32, end int64) int32 {
	n := int32(len(j.inputs))
	j.tasks = append(j.tasks, jobTask{service: service, place: place, end: end, first: n, last: n, from: -1, home: -1})
	return int32(len(j.tasks) - 1)
}

// addUnplaced adds a task to be placed, and returns its index.
func (j *job) add(service int32, work int64, inputs ...int32) int32 {
	n := int32(len(j.inputs))
	j.inputs = append(j.inputs, inputs...)
	j.tasks = append(j.tasks, jobTask{service: service, work: work, place: -1, first: n, last: int32(len(j.inputs)), from: -1, home: -1})
	return int32(len(j.tasks) - 1)
}

func (j *job) inputsOf(t int32) []int32 { return j.inputs[j.tasks[t].first:j.tasks[t].last] }

// scheduler computes f(t, d), the earliest end of task t of a job at place d, if tasks of the job do not get into each
// other's way (equations 1 and 2 of DyOrc). A transfer takes one of three times: 0 at the same place, c within a node, C
// across nodes. So the arrival of the inputs at d is a minimum of three numbers,
//
//	r_t(d) = max over inputs j of min( f_j(d),  min over e in node(d) of f_j(e) + c_j,  min over all e of f_j(e) + C_j )
//	f_t(d) = F_td(r_t(d))      with F_td from the end table
//
// and one pass over the places per task gives all f. No schedule ends before the latest of the last tasks at its best
// place. That is a bound, which a schedule reaches if every output has one reader.
//
// It allocates nothing once it has seen the largest job.
type scheduler struct {
	f    *fleet
	rows *rows
	now  int64

	ends    []int64 // f of all tasks: [task*places + place]
	nodeEnd []int64 // minimum of f on a node: [task*nodes + node]
	nodeAt  []int32 // place with that minimum
	least   []int64 // by task: minimum of f
	leastAt []int32 // by task: place with that minimum
	same    []int32 // by task: an earlier task with the same f; otherwise the task itself
	ready   []int64 // by place: arrival of the inputs of the task at hand

	readers []int32 // by task: number of tasks that read it
}

func newScheduler(f *fleet, r *rows) *scheduler {
	return &scheduler{f: f, rows: r, ready: make([]int64, len(f.ids))}
}

// grow makes the arrays large enough for a job, and counts the readers of each task.
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

// endBound returns a bound: no schedule of the job ends earlier.
func (s *scheduler) boundOf(j *job) int64 {
	bound := int64(0)
	for t := range j.tasks {
		if s.readers[t] == 0 && j.tasks[t].place < 0 {
			bound = max(bound, s.least[s.same[t]])
		}
	}
	return bound
}

// computeEnds computes f for the tasks of a job, from a given one on.
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

// identicalTasks returns true if two tasks need the same service and work on the same inputs and state, so that their
// rows of f are equal.
func (s *scheduler) alike(j *job, a, b int32) bool {
	x, y := &j.tasks[a], &j.tasks[b]
	return y.place < 0 && x.service == y.service && x.work == y.work &&
		x.price == y.price && x.from == y.from && x.home == y.home && x.homeAt == y.homeAt && slices.Equal(j.inputsOf(a), j.inputsOf(b))
}

// computeArrivals computes into inputsReady when the inputs of a task are at each place. It returns false, and leaves
// inputsReady as it is, if all are there now.
func (s *scheduler) arrivals(j *job, t int32) bool {
	late := false
	for i, in := range j.inputsOf(t) {
		if in < 0 {
			continue
		}
		k := &j.tasks[in]
		near, far := s.between(&j.tasks[t], k, in)

		// An input with a place arrives from there.
		if k.place >= 0 {
			if k.end+far <= s.now {
				continue
			}
			late = s.begin(late)
			s.fromPlace(k.place, k.end, k.end+near, k.end+far)
			continue
		}

		// An input without a place arrives from its row. Equal rows count once, unless a session state comes with
		// them.
		own := in == j.tasks[t].from
		if in = s.same[in]; !own && s.seen(j.inputsOf(t)[:i], in) {
			continue
		}
		late = s.begin(late)
		s.fromRow(in, near, far)
	}

	// A session state that has its place arrives, too.
	if k := &j.tasks[t]; k.price > 0 && k.from < 0 {
		late = s.begin(late)
		s.fromHome(k)
	}
	return late
}

// transferTimes returns how long an output takes to a task that reads it, at another place of the node and across nodes.
// If the task continues a session state with it, recomputing the state counts as a way to bring it, so that the times
// stay lower bounds.
func (s *scheduler) between(to, from *jobTask, in int32) (near, far int64) {
	near, far = s.f.near[from.service], s.f.far[from.service]
	if to.price > 0 && to.from == in {
		t := &s.f.tolls[to.service]
		near, far = max(near, to.price*t.near>>20), max(far, to.price*t.far>>20)
	}
	return near, far
}

// arriveFromHome adds the arrival of a session state that has its place, or that is recomputed.
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

// hasRow returns true if one of the inputs has a given row of f.
func (s *scheduler) seen(inputs []int32, row int32) bool {
	for _, in := range inputs {
		if in >= 0 && s.same[in] == row {
			return true
		}
	}
	return false
}

// clearArrivals sets all arrivals to now, unless that has been done already. It returns true.
func (s *scheduler) begin(late bool) bool {
	if !late {
		for d := range s.ready {
			s.ready[d] = s.now
		}
	}
	return true
}

// arriveFromPlace adds the arrival of an output that is at one place.
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

// arriveFromRow adds the arrival of an output whose place is not chosen yet: from the same place, from the best place of
// the node, or from the best place of all, whichever is earliest.
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

// computeRow computes f of a task from the arrivals of its inputs, with the minima by node and overall.
func (s *scheduler) row(t int32, k *jobTask, late bool) {
	places, nodes := len(s.f.ids), len(s.f.nodes)
	ends := s.ends[int(t)*places:][:places]
	at := int(k.service) * places
	free, comp := s.rows.free[at:][:places], s.rows.comp[at:][:places]

	// f in a batch of one.
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

	// f in an open batch, if that is earlier.
	if s.rows.open[k.service] > 0 {
		s.joins(ends, k, late)
	}

	// The minima.
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

// applyJoins lowers f where the task could join an open batch.
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
