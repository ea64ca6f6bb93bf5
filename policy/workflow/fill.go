package workflow

// fullBatchFinder finds the first full batch in a queue. That batch runs before the first task that may run, if this
// task can still be in time behind it: full batches do the most work per device time.
type fill struct {
	first    int32     // queue position of the first task that may run; -1 if none yet
	limit    int64     // latest start of that task, in ns
	services []filling // by service
}

// partialBatch is the batch that the tasks of a service seen so far would form.
type filling struct {
	first, n int32 // position of its first task, and number of tasks
	work     int64 // largest work
}

// reset forgets all batches.
func (f *fill) reset() {
	f.first = -1
	clear(f.services)
}

// addTask adds the next task of a queue that may run. It returns the position of the first task of its batch if that
// batch is full and may run first; otherwise it returns -1.
func (f *fill) add(c *cluster, k *task, place, at int32, now int64) int32 {
	if f.first < 0 {
		f.first, f.limit = at, k.key-c.fleet.cost(k.service, place, 1, k.work)
	}
	if c.sequences().is(k.service) {
		return -1
	}
	s, most := &f.services[k.service], c.fleet.on(k.service, place).most
	if s.n == 0 {
		s.first = at
	}
	s.n, s.work = s.n+1, max(s.work, k.work)
	if s.n == most && (s.first == f.first || now+c.fleet.cost(k.service, place, most, s.work) <= f.limit) {
		return s.first
	}
	return -1
}
