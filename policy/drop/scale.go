package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// scaler loads and unloads workers by the demand.
type scaler struct {
	demand *flow.Demand // nil if all workers serve all the time
}

func (s *scaler) init(rule *flow.Scaling) {
	if rule != nil {
		s.demand = flow.NewDemand(rule)
	}
}

func (s *scaler) arrive() {
	if s.demand != nil {
		s.demand.Arrive()
	}
}

func (s *scaler) pass(now time.Duration) {
	if s.demand != nil {
		s.demand.Pass(now)
	}
}

// scale decides the number of workers of each module; it runs once per second.
func (s *scaler) scale(now time.Duration, f *fleet, out *policy.Actions) {
	if s.demand == nil {
		return
	}
	s.pass(now)
	now = now.Truncate(time.Second) // timers of a real clock fire late
	for m := range f.modules {
		f.resize(now, int32(m), out)
	}
	if !s.demand.Due() {
		return
	}
	for m, n := range s.demand.Want(now) {
		f.decide(now, int32(m), n, out)
	}
}
