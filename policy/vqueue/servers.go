package vqueue

import (
	"time"

	"inferplan/policy"
)

// Dispatcher is the rule of a baseline: requests wait in one list for all instances.
type Dispatcher interface {
	// Await takes a request that waits, Forget one that does so no more, or never did.
	Await(req int32)
	Forget(req int32)
	// Assign gives instances what they are to serve or to load. It is called after every event.
	Assign(now time.Duration, out *policy.Actions)
	// Ended hears of an answer, Tick is called every Options.Every.
	Ended(now time.Duration, req int32)
	Tick(now time.Duration)
	// Violation returns whether a request waits that is late if it starts later than now.
	Violation(now time.Duration) bool
	// Stuck returns a request past its deadline that no instance which is up can serve; -1: none.
	Stuck(now time.Duration) int32
}

// Scaler turns instances on and off.
type Scaler interface {
	// Tick is called every Options.Every, and told whether a violation of a deadline is likely. It returns
	// whether an instance went on.
	Tick(now time.Duration, violation bool) (grown bool)
	// More returns whether ticks are to go on without requests.
	More() bool
}

// Servers is what baselines see of the instances and of the requests.
type Servers struct{ s *serving }

// Instance is a server at an instant. Loaded is its network; -1: none.
type Instance struct {
	Device, Loaded int32
	Running        int
	Counts         []int32 // of what runs, by served model
	Up             bool
	Coming, Failed bool // a network comes; the last load failed
}

// Arrival is a request that the policy has. Deadline is when it is due by its class.
type Arrival struct {
	Model             int32
	Arrived, Deadline time.Duration
	Promised          bool // it is answered however late
}

// Tables returns the tables of the plan.
func (v *Servers) Tables() *policy.Tables { return v.s.t }

// Len returns the number of instances.
func (v *Servers) Len() int32 { return int32(len(v.s.instances)) }

// Instance returns an instance.
func (v *Servers) Instance(q int32) Instance {
	in := &v.s.instances[q]
	return Instance{Device: in.device, Loaded: in.loaded, Running: len(in.running), Counts: in.counts, Up: in.up(), Coming: in.coming >= 0, Failed: in.failed}
}

// Switch turns an instance on or off.
func (v *Servers) Switch(q int32, on bool) { v.s.instances[q].off = !on }

// Waits returns how many groups wait in an instance's queue.
func (v *Servers) Waits(q int32) int { return v.s.state.Len(q) }

// Request returns a request.
func (v *Servers) Request(req int32) Arrival {
	r := &v.s.requests[req]
	return Arrival{Model: r.model, Arrived: r.arrived, Deadline: r.deadline, Promised: r.promised}
}

// Can returns whether an instance may and can serve a network, Serves whether it serves a model at all.
func (v *Servers) Can(q, network int32) bool { return v.s.can(&v.s.instances[q], network) }

// Serves returns whether an instance serves a model at all.
func (v *Servers) Serves(q, model int32) bool { return v.s.serves(&v.s.instances[q], model) }

// Capped returns whether as many of a model run on an instance as may, Room whether it takes one more request.
func (v *Servers) Capped(q, model int32) bool { return v.s.capped(&v.s.instances[q], model) }

// Room returns whether an instance takes one more request.
func (v *Servers) Room(q, req int32) bool { return v.s.room(&v.s.instances[q], &v.s.requests[req]) }

// Holds returns how many sequences and tokens of KV memory an instance takes with a network.
func (v *Servers) Holds(q, network int32) (sequences, kv int64) {
	return v.s.holds(&v.s.instances[q], network)
}

// Most returns how many requests run at once on an instance if one of a model is among them.
func (v *Servers) Most(q, model int32) int64 { return v.s.most(&v.s.instances[q], model) }

// Estimator returns that of a served model on an instance.
func (v *Servers) Estimator(q, model int32) *RCT {
	return v.s.estimator(&v.s.instances[q], model, false)
}

// Lead returns how long before its class's point a request has to start.
func (v *Servers) Lead(q, model int32) time.Duration { return v.s.lead(&v.s.instances[q], model) }

// ChangeTime returns how long a network takes to come to an instance and to leave it again.
func (v *Servers) ChangeTime(q, network int32) time.Duration {
	return v.s.changeTime(&v.s.instances[q], network)
}

// Change brings a network to an instance that runs nothing.
func (v *Servers) Change(now time.Duration, q, network int32, out *policy.Actions) {
	v.s.change(now, &v.s.instances[q], network, out)
}

// Dispatch sends a request that waits to an instance.
func (v *Servers) Dispatch(q, req int32, out *policy.Actions) {
	v.s.dispatch(&v.s.instances[q], req, out)
}
