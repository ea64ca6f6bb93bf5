package baselines

import (
	"inferplan/policy"
	"inferplan/policy/workflow"
)

// robin gives a task the next device after that of the task before.
type robin struct {
	workflow.DeviceView
	turn int32
}

func newRobin(devices workflow.DeviceView, _ uint64) workflow.Routing {
	return &robin{DeviceView: devices}
}

// NextDevice implements workflow.Routing.
func (r *robin) NextDevice(service int32) int32 {
	for range r.Len() {
		if r.turn = (r.turn + 1) % r.Len(); r.CanRun(r.turn, service) {
			return r.turn
		}
	}
	return -1
}

// RequestArrived implements workflow.Routing.
func (*robin) RequestArrived(int64, *policy.Actions) {}

// TimerFired implements workflow.Routing.
func (*robin) TimerFired(int64, *policy.Actions) {}

// CountTask implements workflow.Routing.
func (*robin) CountTask(int64, int32, int) {}

// HoldsNetwork implements workflow.Routing.
func (*robin) HoldsNetwork(int32, int32) bool { return false }

// DeviceLost implements workflow.Routing.
func (*robin) DeviceLost(int32) {}
