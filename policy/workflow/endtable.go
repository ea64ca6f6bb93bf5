package workflow

// endTable holds, for every service and device, when a further task of the service would end there as a function of when its inputs are there.
// Times are in ns. The entry of a service on a device is at [service*deviceCount + deviceIndex].
//
// Equation 1 of DyOrc has one number avail(t, d) and one comp(t, d). With open batches there is a choice: a task that is ready by the start of a
// batch joins it, a later one starts its own. So an entry holds both, and a task ends at
//
//	min( max(idleAt, ready) + soloTime,  joinStart + joinDuration  if ready <= joinStart )
//
// which never falls as `ready` grows. The scheduler needs no more than that.
type endTable struct {
	deviceCount     int32
	idleAt          []int64 // first time at which the device is idle and holds the network
	soloTime        []int64 // duration of a batch of this task alone
	joinStart       []int64 // start of the planned batch that the task can join; -1 if there is none
	joinDuration    []int64 // duration of that batch with the task
	joinableDevices []int32 // by service: number of devices that have a batch to join
}

// newEndTable returns an end table for this many services and devices: when a further task of a service would end on a device, alone or in
// a batch that it joins. At first there is no batch to join (joinStart -1).
func newEndTable(services, deviceCount int) endTable {
	entryCount := services * deviceCount
	table := endTable{deviceCount: int32(deviceCount), idleAt: make([]int64, entryCount), soloTime: make([]int64, entryCount), joinStart: make([]int64, entryCount), joinDuration: make([]int64, entryCount), joinableDevices: make([]int32, services)}
	for i := range table.joinStart {
		table.joinStart[i] = -1
	}
	return table
}

// setSolo writes for a service on a device when the device is idle and how long a batch of one task takes, in ns.
// It removes the batch to join that an earlier plan of the device has left there.
func (t *endTable) setSolo(service, deviceIndex int32, idleAt, soloTime int64) {
	entry := service*t.deviceCount + deviceIndex
	t.idleAt[entry], t.soloTime[entry] = idleAt, soloTime
	if t.joinStart[entry] >= 0 {
		t.joinStart[entry] = -1
		t.joinableDevices[service]--
	}
}

// setJoin writes that a further task of a service can join a planned batch on a device, which starts at `start` and takes `duration` with
// the task, in ns.
func (t *endTable) setJoin(service, deviceIndex int32, start, duration int64) {
	entry := service*t.deviceCount + deviceIndex
	if t.joinStart[entry] < 0 {
		t.joinableDevices[service]++
	}
	t.joinStart[entry], t.joinDuration[entry] = start, duration
}
