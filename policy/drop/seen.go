package drop

import "time"

// RunStatistics holds what only the policy knows of a run.
type Seen struct {
	Queued [][]int64 // by module: tasks by whole ms from their reveal until they entered a batch
	Waited [][]int64 // by module: tasks by whole ms from then until the batch started
	Modes  []Mode    // changes between lowest and highest budget first
}

// OrderChange is a change of the order of a module's queue.
type Mode struct {
	At     time.Duration
	Module int32
	High   bool
}

// maxMilliseconds is the length of the distributions. Longer times count in the last element.
const longest = 2000

// NewRunStatistics returns empty statistics of a number of modules.
func NewSeen(modules int) *Seen {
	s := &Seen{}
	for range modules {
		s.Queued, s.Waited = append(s.Queued, make([]int64, longest)), append(s.Waited, make([]int64, longest))
	}
	return s
}

// Add adds the statistics of another run for a module.
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

// Statistics returns the statistics of the run so far.
func (p *Policy) Seen() *Seen { return p.plan.seen }
