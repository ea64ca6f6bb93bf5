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
type endTable struct {
	deviceCount     int32
	idleAt          []int64 // first idle instant with the network loaded
	soloTime        []int64 // time of a batch of one
	joinStart       []int64 // start of the batch that can be joined; -1 if none
	joinDuration    []int64 // time of that batch with one task more
	joinableDevices []int32 // by service: places with a batch that can be joined
}

// newEndTable returns the table of when a task of each service would end at each place (device), alone or in a
// batch that it can join. At first there is no such batch (-1).
func newEndTable(services, deviceCount int) endTable {
	n := services * deviceCount
	r := endTable{deviceCount: int32(deviceCount), idleAt: make([]int64, n), soloTime: make([]int64, n), joinStart: make([]int64, n), joinDuration: make([]int64, n), joinableDevices: make([]int32, services)}
	for i := range r.joinStart {
		r.joinStart[i] = -1
	}
	return r
}

// setSolo writes when a service's task could start at a place in a batch of its own, and how long it takes. A batch
// to join, from an earlier plan, is removed.
func (t *endTable) setSolo(service, deviceIndex int32, idleAt, soloTime int64) {
	i := service*t.deviceCount + deviceIndex
	t.idleAt[i], t.soloTime[i] = idleAt, soloTime
	if t.joinStart[i] >= 0 {
		t.joinStart[i] = -1
		t.joinableDevices[service]--
	}
}

// setJoin writes that a task of a service can join a planned batch at a place, which starts at `start` and then
// takes `duration`.
func (t *endTable) setJoin(service, deviceIndex int32, start, duration int64) {
	i := service*t.deviceCount + deviceIndex
	if t.joinStart[i] < 0 {
		t.joinableDevices[service]++
	}
	t.joinStart[i], t.joinDuration[i] = start, duration
}
