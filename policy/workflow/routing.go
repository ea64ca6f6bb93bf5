package workflow

import "inferplan/policy"

// Routing gives tasks their devices in place of the search: a baseline. A place is the index of a device
// in the order of nodes.
type Routing interface {
	// Arrived hears of a request, and Woke of a wake with the tag 0, which both may ask for.
	Arrived(now int64, out *policy.Actions)
	Woke(now int64, out *policy.Actions)
	// Count hears of a task that became known (by is 1) or ended (-1).
	Count(now int64, service int32, by int)
	// Route returns the place of a task of a service; -1: no device is left for it.
	Route(service int32) int32
	// Holds returns whether a network is to be at a place, if no task asks for it too.
	Holds(network, place int32) bool
	// Lost hears of a device that is gone.
	Lost(place int32)
}

// Devices is what a routing sees of the devices.
type Devices struct{ c *cluster }

// Len returns the number of places.
func (v Devices) Len() int32 { return int32(len(v.c.devices)) }

// Services returns the number of services.
func (v Devices) Services() int32 { return int32(len(v.c.fleet.services)) }

// Runs returns whether a device is there and can run a service.
func (v Devices) Runs(place, service int32) bool {
	return !v.c.devices[place].down && v.c.fleet.runs(service, place)
}

// Loaded returns whether a device has the network of a service.
func (v Devices) Loaded(place, service int32) bool {
	return v.c.devices[place].loaded[v.Network(service)]
}

// Waiting returns the number of tasks of a service on a device, those in its batch included.
func (v Devices) Waiting(place, service int32) int { return v.c.waiting(place, service) }

// Memory returns the bytes of a device for networks.
func (v Devices) Memory(place int32) int64 { return v.c.devices[place].memory }

// Network returns the network of a service, and Bytes its size.
func (v Devices) Network(service int32) int32 { return v.c.fleet.services[service].network }

// Bytes returns the size of the network of a service.
func (v Devices) Bytes(service int32) int64 { return v.c.fleet.bytes[v.Network(service)] }

// Look has the loads of all devices looked at before the turn ends.
func (v Devices) Look() {
	for place := range v.c.devices {
		v.c.touchDevice(int32(place))
	}
}

// Candidate is a task that a device is to run in the order of Options.Rank. Times are in nanoseconds.
type Candidate struct {
	Now      int64
	Expected bool  // it is not revealed yet
	Deadline int64 // of its request
	Behind   int64 // least time from its end to that of its request
	Booked   int64 // how far devices are booked ahead, on average
	Alone    int64 // time of the task in a batch of one
}

// candidate describes a task that has just been placed.
func (p *placement) candidate(now int64, k *task, behind int64) Candidate {
	r := Candidate{Now: now, Expected: k.req < 0, Behind: behind, Booked: p.booked(now), Alone: p.fleet.cost(k.service, k.place, 1, k.work)}
	if !r.Expected {
		r.Deadline = p.requests[k.req].deadline
	}
	return r
}
