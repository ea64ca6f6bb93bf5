package baselines

import (
	"inferplan/policy"
	"inferplan/policy/workflow"
)

// robin gives a task the next device after that of the task before.
type robin struct {
	workflow.Devices
	turn int32
}

func newRobin(devices workflow.Devices, _ uint64) workflow.Routing { return &robin{Devices: devices} }

// Route implements workflow.Routing.
func (r *robin) Route(service int32) int32 {
	for range r.Len() {
		if r.turn = (r.turn + 1) % r.Len(); r.Runs(r.turn, service) {
			return r.turn
		}
	}
	return -1
}

// Arrived implements workflow.Routing.
func (*robin) Arrived(int64, *policy.Actions) {}

// Woke implements workflow.Routing.
func (*robin) Woke(int64, *policy.Actions) {}

// Count implements workflow.Routing.
func (*robin) Count(int64, int32, int) {}

// Holds implements workflow.Routing.
func (*robin) Holds(int32, int32) bool { return false }

// Lost implements workflow.Routing.
func (*robin) Lost(int32) {}
