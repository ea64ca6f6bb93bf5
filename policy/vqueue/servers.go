package vqueue

import (
	"time"

	"inferplan/policy"
)

// Dispatcher is the rule of a baseline: requests wait in one list for all instances.
type Dispatcher interface {
	// AddWaiting adds a waiting request. RemoveWaiting removes a request that no longer waits, or never did.
	Await(req int32)
	Forget(req int32)
	// AssignRequests assigns requests and networks to instances. It is called after every event.
	Assign(now time.Duration, out *policy.Actions)
	// RequestEnded is called when a request is answered, Tick at every tick.
	Ended(now time.Duration, req int32)
	Tick(now time.Duration)
	// ViolationExpected reports whether a request waits that is late if it starts later than now.
	Violation(now time.Duration) bool
	// StuckRequest returns a request past its deadline that no instance which is up can serve. If there is none,
	// it returns -1.
	Stuck(now time.Duration) int32
}

// Scaler switches instances on and off.
type Scaler interface {
	// Tick is called at every tick, with whether a violation of a deadline is likely. It reports whether it
	// switched an instance on.
	Tick(now time.Duration, violation bool) (grown bool)
	// NeedsTicks reports whether ticks are to continue without requests.
	More() bool
}

// InstanceControl gives baselines access to the instances and requests.
type Servers struct{ s *serving }

// InstanceView is the state of an instance. LoadedNetwork is -1 if there is none.
type Instance struct {
	Device, Loaded int32
	Running        int
	Counts         []int32 // number of running requests by served model
	Up             bool
	Coming, Failed bool // a network is loading; the last load failed
}

// RequestView is a request that waits or runs. Deadline is that of its class's milestone.
type Arrival struct {
	Model             int32
	Arrived, Deadline time.Duration
	Promised          bool // it is answered however late it is
}

// Tables returns the tables of the plan.
func (v *Servers) Tables() *policy.Tables { return v.s.t }

// Len returns the number of instances.
func (v *Servers) Len() int32 { return int32(len(v.s.instances)) }

// Instance returns the state of an instance.
func (v *Servers) Instance(q int32) Instance {
	in := &v.s.instances[q]
	return Instance{Device: in.device, Loaded: in.loaded, Running: len(in.running), Counts: in.counts, Up: in.up(), Coming: in.coming >= 0, Failed: in.failed}
}

// SwitchInstance switches an instance on or off.
func (v *Servers) Switch(q int32, on bool) { v.s.instances[q].off = !on }

// WaitingGroups returns how many groups wait in an instance's queue.
func (v *Servers) Waits(q int32) int { return v.s.state.Len(q) }

// Request returns the view of a request.
func (v *Servers) Request(req int32) Arrival {
	r := &v.s.requests[req]
	return Arrival{Model: r.model, Arrived: r.arrived, Deadline: r.deadline, Promised: r.promised}
}

// CanServe reports whether an instance may and can serve a network.
func (v *Servers) Can(q, network int32) bool { return v.s.can(&v.s.instances[q], network) }

// ServesModel reports whether an instance serves a model, by its network and caps.
func (v *Servers) Serves(q, model int32) bool { return v.s.serves(&v.s.instances[q], model) }

// AtCap reports whether as many requests of a model run on an instance as its cap allows.
func (v *Servers) Capped(q, model int32) bool { return v.s.capped(&v.s.instances[q], model) }

// CanTakeRequest reports whether an instance takes one more request.
func (v *Servers) Room(q, req int32) bool { return v.s.room(&v.s.instances[q], &v.s.requests[req]) }

// Capacity returns how many sequences and tokens of KV memory an instance takes with a network.
func (v *Servers) Holds(q, network int32) (sequences, kv int64) {
	return v.s.holds(&v.s.instances[q], network)
}

// MaxRunning returns how many requests may run at once on an instance if one of a model is among them.
func (v *Servers) Most(q, model int32) int64 { return v.s.most(&v.s.instances[q], model) }

// Estimator returns the estimator of a served model on an instance.
func (v *Servers) Estimator(q, model int32) *RCT {
	return v.s.estimator(&v.s.instances[q], model, false)
}

// LeadTime returns how long before its milestone a request has to start, in the mean.
func (v *Servers) Lead(q, model int32) time.Duration { return v.s.lead(&v.s.instances[q], model) }

// ChangeTime returns how long it takes to load a network on an instance and to unload it again.
func (v *Servers) ChangeTime(q, network int32) time.Duration {
	return v.s.changeTime(&v.s.instances[q], network)
}

// ChangeNetwork loads a network on an instance on which nothing runs.
func (v *Servers) Change(now time.Duration, q, network int32, out *policy.Actions) {
	v.s.change(now, &v.s.instances[q], network, out)
}

// DispatchRequest sends a waiting request to an instance.
func (v *Servers) Dispatch(q, req int32, out *policy.Actions) {
	v.s.dispatch(&v.s.instances[q], req, out)
}
