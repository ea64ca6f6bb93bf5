package workflow

// endTable holds, for every service and place, when a task of the service would end there as a function of when its
// inputs are there. Times are absolute, in ns. The entries of a service lie next to each other.
//
// Equation 1 of DyOrc has one number avail(t, d) and one comp(t, d). With open batches there is a choice: a task that is
// ready by the start of a batch joins it, a later one starts its own. So an entry holds both, and a task ends at
//
//	min( max(idleAt, ready) + soloTime,  joinStart + joinDuration  if ready <= joinStart )
//
// which never falls as `ready` grows. The scheduler needs no more than that.
type rows struct {
	places int32
	free   []int64 // first idle instant with the network loaded
	comp   []int64 // time of a batch of one
	join   []int64 // start of the batch that can be joined; -1 if none
	joined []int64 // time of that batch with one task more
	open   []int32 // by service: places with a batch that can be joined
}

// newEndTable returns a table without open batches.
func newRows(services, places int) rows {
	n := services * places
	r := rows{places: int32(places), free: make([]int64, n), comp: make([]int64, n), join: make([]int64, n), joined: make([]int64, n), open: make([]int32, services)}
	for i := range r.join {
		r.join[i] = -1
	}
	return r
}

// setSolo writes the entry of a service at a place without a batch to join.
func (r *rows) set(service, place int32, free, comp int64) {
	i := service*r.places + place
	r.free[i], r.comp[i] = free, comp
	if r.join[i] >= 0 {
		r.join[i] = -1
		r.open[service]--
	}
}

// setJoin adds a batch that can be joined to an entry.
func (r *rows) setJoin(service, place int32, start, took int64) {
	i := service*r.places + place
	if r.join[i] < 0 {
		r.open[service]++
	}
	r.join[i], r.joined[i] = start, took
}
