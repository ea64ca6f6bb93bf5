package drop

import "time"

// RunStatistics holds what only the policy knows of a run.
type RunStatistics struct {
	QueueTimes   [][]int64     // by module: tasks by whole ms from their reveal until they entered a batch
	BatchWaits   [][]int64     // by module: tasks by whole ms from then until the batch started
	OrderChanges []OrderChange // changes between lowest and highest budget first
}

// OrderChange is a change of the order of a module's queue.
type OrderChange struct {
	ChangedAt    time.Duration
	Module       int32
	HighestFirst bool
}

// maxMilliseconds is the length of the distributions. Longer times count in the last element.
const maxMilliseconds = 2000

// NewRunStatistics returns empty statistics of a number of modules.
func NewRunStatistics(modules int) *RunStatistics {
	s := &RunStatistics{}
	for range modules {
		s.QueueTimes, s.BatchWaits = append(s.QueueTimes, make([]int64, maxMilliseconds)), append(s.BatchWaits, make([]int64, maxMilliseconds))
	}
	return s
}

// Add adds the statistics of another run for a module.
func (s *RunStatistics) Add(module int, other *RunStatistics) {
	for ms := range maxMilliseconds {
		s.QueueTimes[module][ms] += other.QueueTimes[module][ms]
		s.BatchWaits[module][ms] += other.BatchWaits[module][ms]
	}
}

func (s *RunStatistics) recordEntry(m int32, queueTime, wait time.Duration) {
	s.QueueTimes[m][min(queueTime/time.Millisecond, maxMilliseconds-1)]++
	s.BatchWaits[m][min(wait/time.Millisecond, maxMilliseconds-1)]++
}

func (s *RunStatistics) recordOrderChange(now time.Duration, m int32, highestFirst bool) {
	s.OrderChanges = append(s.OrderChanges, OrderChange{now, m, highestFirst})
}

// Statistics returns the statistics of the run so far.
func (p *Policy) Statistics() *RunStatistics { return p.planner.statistics }
