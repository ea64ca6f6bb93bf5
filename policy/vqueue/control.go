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
type InstanceControl struct {
	fleet    *instanceFleet
	requests *requestTable
	server   *queueServer
}

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
	AnswerPromised      bool  // it is answered however late it is
	Session             int64 // 0 if it has none
}

// Tables returns the tables of the plan.
func (v *InstanceControl) Tables() *policy.Tables { return v.fleet.tables }

// Len returns the number of instances.
func (v *InstanceControl) Len() int32 { return int32(len(v.fleet.instances)) }

// Instance returns the state of an instance.
func (v *InstanceControl) Instance(queueIndex int32) InstanceView {
	instance := &v.fleet.instances[queueIndex]
	return InstanceView{Device: instance.device, LoadedNetwork: instance.loadedNetwork, RunningRequests: len(instance.runningBatches), RunningByModel: instance.runningByModel, IsUp: instance.isUp(), IsLoading: instance.loadingNetwork >= 0, LoadFailed: instance.loadFailed}
}

// SwitchInstance switches the instance of a queue on or off.
func (v *InstanceControl) SwitchInstance(queueIndex int32, switchedOn bool) {
	v.fleet.instances[queueIndex].isSwitchedOff = !switchedOn
}

// WaitingGroups returns how many groups wait in a queue.
func (v *InstanceControl) WaitingGroups(queueIndex int32) int {
	return v.server.groups.assignment.Len(queueIndex)
}

// Request returns the view of a request, given by its number.
func (v *InstanceControl) Request(requestNumber int32) RequestView {
	request := &v.requests.byNumber[requestNumber]
	return RequestView{Model: request.model, ArrivedAt: request.arrivedAt, Deadline: request.deadline, AnswerPromised: request.answerPromised, Session: request.session}
}

// CanServe reports whether an instance may and can serve a network.
func (v *InstanceControl) CanServe(queueIndex, network int32) bool {
	return v.fleet.canServe(&v.fleet.instances[queueIndex], network)
}

// ServesModel reports whether an instance serves a model, by its network and caps.
func (v *InstanceControl) ServesModel(queueIndex, model int32) bool {
	return v.fleet.servesModel(&v.fleet.instances[queueIndex], model)
}

// AtCap reports whether as many requests of a model run on an instance as its cap allows at once.
func (v *InstanceControl) AtCap(queueIndex, model int32) bool {
	return v.fleet.atCap(&v.fleet.instances[queueIndex], model)
}

// CanTakeRequest reports whether an instance takes one more request.
func (v *InstanceControl) CanTakeRequest(queueIndex, requestNumber int32) bool {
	return v.fleet.canTakeRequest(&v.fleet.instances[queueIndex], &v.requests.byNumber[requestNumber])
}

// Capacity returns how many sequences (requests at once) and tokens of KV memory an instance takes with a network.
func (v *InstanceControl) Capacity(queueIndex, network int32) (sequences, kv int64) {
	return v.fleet.capacity(&v.fleet.instances[queueIndex], network)
}

// MaxRunning returns how many requests may run at once on an instance if one of a model is among them.
func (v *InstanceControl) MaxRunning(queueIndex, model int32) int64 {
	return v.fleet.maxRunning(&v.fleet.instances[queueIndex], model)
}

// Estimator returns the estimator of a served model on an instance.
func (v *InstanceControl) Estimator(queueIndex, model int32) *RCT {
	return v.fleet.estimatorOn(&v.fleet.instances[queueIndex], model, false)
}

// LeadTime returns how long before its deadline a request of a model has to start on an instance, in the mean.
func (v *InstanceControl) LeadTime(queueIndex, model int32) time.Duration {
	return v.fleet.leadTime(&v.fleet.instances[queueIndex], model)
}

// ChangeTime returns how long it takes to load a network on an instance and to unload it again.
func (v *InstanceControl) ChangeTime(queueIndex, network int32) time.Duration {
	return v.fleet.changeTime(&v.fleet.instances[queueIndex], network)
}

// ChangeNetwork loads a network on an instance on which nothing runs.
func (v *InstanceControl) ChangeNetwork(now time.Duration, queueIndex, network int32, actions *policy.Actions) {
	v.server.changeNetwork(now, &v.fleet.instances[queueIndex], network, actions)
}

// DispatchRequest sends a waiting request to an instance.
func (v *InstanceControl) DispatchRequest(queueIndex, requestNumber int32, actions *policy.Actions) {
	v.server.dispatchRequest(&v.fleet.instances[queueIndex], requestNumber, actions)
}
