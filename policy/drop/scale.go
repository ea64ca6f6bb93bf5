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

// init makes the scaler follow a plan's scaling rule. Without a rule (nil) all workers serve all the time.
func (s *scaler) init(scaling *flow.Scaling) {
	if scaling != nil {
		s.demand = flow.NewWorkerDemand(scaling)
	}
}

// countArrival counts a request that arrives.
func (s *scaler) countArrival() {
	if s.demand != nil {
		s.demand.CountArrival()
	}
}

// passTime ends the seconds before now in the count of arrivals.
func (s *scaler) passTime(now time.Duration) {
	if s.demand != nil {
		s.demand.PassTime(now)
	}
}

// scale is called once per second. It applies earlier decisions on the number of workers of each module that take
// effect now, which unloads the networks of workers that are not wanted any more. When a decision is due, it decides
// anew by the rate of requests; networks of workers that are added are then loaded at once. Without a scaling rule it
// does nothing.
func (s *scaler) scale(now time.Duration, fleet *workerFleet, out *policy.Actions) {
	if s.demand == nil {
		return
	}
	s.passTime(now) // the second that has ended counts from here on

	// Timers of a real clock fire late. The decisions are those of the whole second, as in a simulation.
	now = now.Truncate(time.Second)
	for module := range fleet.modules {
		fleet.applySizes(now, int32(module), out)
	}
	if !s.demand.IsDecisionDue() {
		return
	}
	for module, n := range s.demand.WantedWorkers(now) {
		fleet.setTargetWorkers(now, int32(module), n, out)
	}
}
