package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// scaler loads and unloads workers by the demand.
type scaler struct {
	demand *flow.WorkerDemand // nil if all workers serve all the time
}

func (s *scaler) init(scaling *flow.Scaling) {
	if scaling != nil {
		s.demand = flow.NewWorkerDemand(scaling)
	}
}

func (s *scaler) countArrival() {
	if s.demand != nil {
		s.demand.CountArrival()
	}
}

func (s *scaler) passTime(now time.Duration) {
	if s.demand != nil {
		s.demand.PassTime(now)
	}
}

// scale is called once per second. It applies earlier decisions on the number of workers of each module that take
// effect now and, when one is due, decides anew by the rate of requests. Without a scaling rule it does nothing.
func (s *scaler) scale(now time.Duration, f *workerFleet, out *policy.Actions) {
	if s.demand == nil {
		return
	}
	s.passTime(now)
	now = now.Truncate(time.Second) // timers of a real clock fire late
	for m := range f.modules {
		f.applySizes(now, int32(m), out)
	}
	if !s.demand.IsDecisionDue() {
		return
	}
	for m, n := range s.demand.WantedWorkers(now) {
		f.setTargetWorkers(now, int32(m), n, out)
	}
}
