package vqueue

import (
	"time"

	"inferplan/policy"
)

// Dispatcher is the rule of a baseline: requests wait in one list for all instances.
type Dispatcher interface {
	// AddWaiting adds a waiting request. RemoveWaiting removes a request that no longer waits, or never did.
	AddWaiting(req int32)
	RemoveWaiting(req int32)
	// AssignRequests assigns requests and networks to instances. It is called after every event.
	AssignRequests(now time.Duration, out *policy.Actions)
	// RequestEnded is called when a request is answered, Tick at every tick.
	RequestEnded(now time.Duration, req int32)
	Tick(now time.Duration)
	// ViolationExpected reports whether a request waits that is late if it starts later than now.
	ViolationExpected(now time.Duration) bool
	// StuckRequest returns a request past its deadline that no instance which is up can serve. If there is none,
	// it returns -1.
	StuckRequest(now time.Duration) int32
}

// Scaler switches instances on and off.
type Scaler interface {
	// Tick is called at every tick, with whether a violation of a deadline is likely. It reports whether it
	// switched an instance on.
	Tick(now time.Duration, violation bool) (grown bool)
	// NeedsTicks reports whether ticks are to continue without requests.
	NeedsTicks() bool
}

// InstanceControl gives baselines access to the instances and requests.
type InstanceControl struct{ server *queueServer }

// InstanceView is the state of an instance. LoadedNetwork is -1 if there is none.
type InstanceView struct {
	Device, LoadedNetwork int32
	RunningRequests       int
	RunningByModel        []int32 // number of running requests by served model
	IsUp                  bool
	IsLoading, LoadFailed bool // a network is loading; the last load failed
}

// RequestView is a request that waits or runs. Deadline is that of its class's milestone.
type RequestView struct {
	Model               int32
	ArrivedAt, Deadline time.Duration
	AnswerPromised      bool // it is answered however late it is
}

// Tables returns the tables of the plan.
func (v *InstanceControl) Tables() *policy.Tables { return v.server.tables }

// Len returns the number of instances.
func (v *InstanceControl) Len() int32 { return int32(len(v.server.instances)) }

// Instance returns the state of an instance.
func (v *InstanceControl) Instance(q int32) InstanceView {
	in := &v.server.instances[q]
	return InstanceView{Device: in.device, LoadedNetwork: in.loadedNetwork, RunningRequests: len(in.runningBatches), RunningByModel: in.runningByModel, IsUp: in.isUp(), IsLoading: in.loadingNetwork >= 0, LoadFailed: in.loadFailed}
}

// SwitchInstance switches an instance on or off.
func (v *InstanceControl) SwitchInstance(q int32, switchedOn bool) {
	v.server.instances[q].switchedOff = !switchedOn
}

// WaitingGroups returns how many groups wait in an instance's queue.
func (v *InstanceControl) WaitingGroups(q int32) int { return v.server.assignment.Len(q) }

// Request returns the view of a request.
func (v *InstanceControl) Request(req int32) RequestView {
	r := &v.server.requests[req]
	return RequestView{Model: r.model, ArrivedAt: r.arrivedAt, Deadline: r.deadline, AnswerPromised: r.answerPromised}
}

// CanServe reports whether an instance may and can serve a network.
func (v *InstanceControl) CanServe(q, network int32) bool {
	return v.server.canServe(&v.server.instances[q], network)
}

// ServesModel reports whether an instance serves a model, by its network and caps.
func (v *InstanceControl) ServesModel(q, model int32) bool {
	return v.server.servesModel(&v.server.instances[q], model)
}

// AtCap reports whether as many requests of a model run on an instance as its cap allows.
func (v *InstanceControl) AtCap(q, model int32) bool {
	return v.server.atCap(&v.server.instances[q], model)
}

// CanTakeRequest reports whether an instance takes one more request.
func (v *InstanceControl) CanTakeRequest(q, req int32) bool {
	return v.server.canTakeRequest(&v.server.instances[q], &v.server.requests[req])
}

// Capacity returns how many sequences and tokens of KV memory an instance takes with a network.
func (v *InstanceControl) Capacity(q, network int32) (sequences, kv int64) {
	return v.server.capacity(&v.server.instances[q], network)
}

// MaxRunning returns how many requests may run at once on an instance if one of a model is among them.
func (v *InstanceControl) MaxRunning(q, model int32) int64 {
	return v.server.maxRunning(&v.server.instances[q], model)
}

// Estimator returns the estimator of a served model on an instance.
func (v *InstanceControl) Estimator(q, model int32) *RCT {
	return v.server.estimatorOn(&v.server.instances[q], model, false)
}

// LeadTime returns how long before its milestone a request has to start, in the mean.
func (v *InstanceControl) LeadTime(q, model int32) time.Duration {
	return v.server.leadTime(&v.server.instances[q], model)
}

// ChangeTime returns how long it takes to load a network on an instance and to unload it again.
func (v *InstanceControl) ChangeTime(q, network int32) time.Duration {
	return v.server.changeTime(&v.server.instances[q], network)
}

// ChangeNetwork loads a network on an instance on which nothing runs.
func (v *InstanceControl) ChangeNetwork(now time.Duration, q, network int32, out *policy.Actions) {
	v.server.changeNetwork(now, &v.server.instances[q], network, out)
}

// DispatchRequest sends a waiting request to an instance.
func (v *InstanceControl) DispatchRequest(q, req int32, out *policy.Actions) {
	v.server.dispatchRequest(&v.server.instances[q], req, out)
}
