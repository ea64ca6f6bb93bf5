package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// scaler has workers loaded and unloaded as the demand says.
type scaler struct {
	demand *flow.Demand // nil: all workers are there all the time
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

// scale is the second's work of scaling.
func (s *scaler) scale(now time.Duration, f *fleet, out *policy.Actions) {
	if s.demand == nil {
		return
	}
	s.pass(now)
	now = now.Truncate(time.Second) // a timer of a real clock is late
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
