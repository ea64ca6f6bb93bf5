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

// InstanceControl gives baselines access to the instances and requests: what the policy itself asks of an instance and does with it.
type InstanceControl struct {
	*instanceFleet
	*queueServer
}

// Tables returns the tables of the plan.
func (v *InstanceControl) Tables() *policy.Tables { return v.tables }

// Len returns the number of instances.
func (v *InstanceControl) Len() int32 { return int32(len(v.instances)) }

// Instance returns the instance of a queue. A rule may change IsSwitchedOff alone.
func (v *InstanceControl) Instance(queueIndex int32) *Instance { return &v.instances[queueIndex] }

// WaitingGroups returns how many groups wait in a queue.
func (v *InstanceControl) WaitingGroups(queueIndex int32) int {
	return v.groups.assignment.Len(queueIndex)
}

// Request returns a request that waits or runs, given by its number. It may move in memory when another arrives.
func (v *InstanceControl) Request(requestNumber int32) *Request {
	return &v.requests.byNumber[requestNumber]
}
