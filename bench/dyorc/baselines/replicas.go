package baselines

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/workflow"
)

// Reactive loading in the way of Ray Serve: a replica has so many tasks under way
// on average, seen at checks over the last few of them, and a fleet that is too
// large shrinks after a while.
const (
	perReplica = 2.0
	checkEvery = int64(10 * time.Second)
	checks     = 3
	downAfter  = int64(600 * time.Second)
)

// replicas are the replicas of services on devices. A task goes to the better of two random replicas of its
// service, whose number follows the load: reactive loading.
type replicas struct {
	workflow.DeviceView
	by      []replicated // by service
	ticking bool
	open    int     // tasks under way
	pair    []int32 // scratch
	rng     *rand.Rand
}

// replicated is a service with its replicas.
type replicated struct {
	places []int32
	open   int     // tasks under way
	area   float64 // of open over time, in ns
	since  int64   // of the area
	areas  [checks]float64
	times  [checks]int64
	above  int64 // since when there are more replicas than are wanted; -1: there are not
}

func newReplicas(devices workflow.DeviceView, seed uint64) workflow.Routing {
	r := &replicas{DeviceView: devices, by: make([]replicated, devices.Services()), rng: seeded.New(seed, "replicas")}
	for s := range r.by {
		r.by[s].above = -1
	}
	return r
}

// RequestArrived begins the checks with the first request.
func (r *replicas) RequestArrived(now int64, out *policy.Actions) {
	if r.ticking {
		return
	}
	r.ticking = true
	for s := range r.by {
		sv := &r.by[s]
		sv.since, sv.area = now, 0
		for i := range checks {
			sv.areas[i], sv.times[i] = 0, now
		}
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: time.Duration(now + checkEvery)})
}

// count brings the area of a service up to date.
func (s *replicated) count(now int64) {
	s.area += float64(s.open) * float64(now-s.since)
	s.since = now
}

// CountTask notes a task that has become known, or has ended.
func (r *replicas) CountTask(now int64, service int32, by int) {
	r.by[service].count(now)
	r.by[service].open += by
	r.open += by
}

// TimerFired is a check of all services.
func (r *replicas) TimerFired(now int64, out *policy.Actions) {
	for s := range r.by {
		sv := &r.by[s]
		sv.count(now)
		mean := 0.0
		if past := now - sv.times[0]; past > 0 {
			mean = (sv.area - sv.areas[0]) / float64(past)
		}
		copy(sv.areas[:], sv.areas[1:])
		copy(sv.times[:], sv.times[1:])
		sv.areas[checks-1], sv.times[checks-1] = sv.area, now
		r.resize(int32(s), int(math.Ceil(mean/perReplica)), now)
	}
	r.TouchAll()
	if r.ticking = r.open > 0; r.ticking {
		out.List = append(out.List, policy.Action{Kind: policy.Wake, At: time.Duration(now + checkEvery)})
	}
}

// resize brings the replicas of a service to a number: up at once, down after a
// while.
func (r *replicas) resize(service int32, want int, now int64) {
	sv := &r.by[service]
	for len(sv.places) < want && r.add(service, false) {
	}
	if len(sv.places) <= want {
		sv.above = -1
		return
	}
	if sv.above < 0 {
		sv.above = now
	}
	if now-sv.above < downAfter {
		return
	}
	for len(sv.places) > want {
		least := 0
		for i, place := range sv.places {
			if r.WaitingTasks(place, service) < r.WaitingTasks(sv.places[least], service) {
				least = i
			}
		}
		sv.places = slices.Delete(sv.places, least, least+1)
	}
	sv.above = -1
}

// add puts a replica of a service on the device that has most room for it; with
// must also where there is none.
func (r *replicas) add(service int32, must bool) bool {
	sv := &r.by[service]
	best, most := int32(-1), int64(0)
	need := r.Bytes(service)
	for place := range r.Len() {
		if !r.CanRun(place, service) || slices.Contains(sv.places, place) {
			continue
		}
		room := r.Memory(place) - r.taken(place)
		if room < need && !must {
			continue
		}
		if best < 0 || room > most {
			best, most = place, room
		}
	}
	if best < 0 {
		return false
	}
	sv.places = append(sv.places, best)
	return true
}

// taken returns the bytes of the replicas on a device.
func (r *replicas) taken(place int32) int64 {
	sum := int64(0)
	for s := range r.by {
		if slices.Contains(r.by[s].places, place) {
			sum += r.Bytes(int32(s))
		}
	}
	return sum
}

// HoldsNetwork returns whether a replica on a device needs a network.
func (r *replicas) HoldsNetwork(network, place int32) bool {
	for s := range r.by {
		if r.Network(int32(s)) == network && slices.Contains(r.by[s].places, place) {
			return true
		}
	}
	return false
}

// DeviceLost takes the replicas off a device.
func (r *replicas) DeviceLost(place int32) {
	for s := range r.by {
		sv := &r.by[s]
		sv.places = slices.DeleteFunc(sv.places, func(d int32) bool { return d == place })
	}
}

// NextDevice returns, of two random replicas that have their network, else of any two, the one with fewer tasks.
func (r *replicas) NextDevice(service int32) int32 {
	sv := &r.by[service]
	if len(sv.places) == 0 && !r.add(service, true) {
		return -1
	}
	r.pair = r.pair[:0]
	for _, place := range sv.places {
		if r.HasNetwork(place, service) {
			r.pair = append(r.pair, place)
		}
	}
	if len(r.pair) == 0 {
		r.pair = append(r.pair, sv.places...)
	}
	a, b := r.pair[r.rng.IntN(len(r.pair))], r.pair[r.rng.IntN(len(r.pair))]
	if r.WaitingTasks(b, service) < r.WaitingTasks(a, service) {
		return b
	}
	return a
}
