package drop

import "time"

// Seen is what a run showed that only the policy knows.
type Seen struct {
	Queued [][]int64 // by module: tasks by whole milliseconds from reveal to admission
	Waited [][]int64 // and from admission to the batch's start
	Modes  []Mode    // changes between LBF and HBF
}

// Mode is a change of a module's order.
type Mode struct {
	At     time.Duration
	Module int32
	High   bool
}

// longest is where the distributions end, in milliseconds: what is longer stands
// in the last place.
const longest = 2000

// NewSeen has nothing seen of so many modules.
func NewSeen(modules int) *Seen {
	s := &Seen{}
	for range modules {
		s.Queued, s.Waited = append(s.Queued, make([]int64, longest)), append(s.Waited, make([]int64, longest))
	}
	return s
}

// Add adds what another run showed of a module.
func (s *Seen) Add(module int, o *Seen) {
	for ms := range longest {
		s.Queued[module][ms] += o.Queued[module][ms]
		s.Waited[module][ms] += o.Waited[module][ms]
	}
}

func (s *Seen) admitted(m int32, queued, wait time.Duration) {
	s.Queued[m][min(queued/time.Millisecond, longest-1)]++
	s.Waited[m][min(wait/time.Millisecond, longest-1)]++
}

func (s *Seen) changed(now time.Duration, m int32, high bool) {
	s.Modes = append(s.Modes, Mode{now, m, high})
}

// Seen is what the run has shown so far.
func (p *Policy) Seen() *Seen { return p.plan.seen }
