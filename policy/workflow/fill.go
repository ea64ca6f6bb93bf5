package workflow

// fill looks for the first full batch in a queue. It goes before the first task that may run,
// if that can be in time behind it: full batches do most in the time of a device.
type fill struct {
	first    int32 // place of the first task that may run; -1: none
	limit    int64 // when it has to begin
	services []filling
}

// filling is the batch of a service, so far.
type filling struct {
	first, n int32
	work     int64
}

func (f *fill) reset() {
	f.first = -1
	clear(f.services)
}

// add takes in the next task of a queue that may run. It returns the place of the first task
// of its batch, if that is full and may go first; if not, it returns -1.
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
