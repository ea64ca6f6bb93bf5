package drop

import "time"

// RunStatistics holds what only the policy knows of a run.
type RunStatistics struct {
	QueueTimes   [][]int64     // by module: tasks by whole ms from their reveal until they entered a batch
	BatchWaits   [][]int64     // by module: tasks by whole ms from then until the batch started
	OrderChanges []OrderChange `runs:"first"` // changes between lowest and highest budget first
}

// OrderChange is a change of the order of a module's queue.
type OrderChange struct {
	ChangedAt    time.Duration
	Module       int32
	HighestFirst bool
}

// maxMilliseconds is the length of the distributions. Longer times count in the last element.
const maxMilliseconds = 2000

// newRunStatistics returns empty statistics of a run with this many modules.
func newRunStatistics(modules int) *RunStatistics {
	statistics := &RunStatistics{}
	for range modules {
		statistics.QueueTimes = append(statistics.QueueTimes, make([]int64, maxMilliseconds))
		statistics.BatchWaits = append(statistics.BatchWaits, make([]int64, maxMilliseconds))
	}
	return statistics
}

// recordEntry counts a task of a module that enters a batch after queueTime, and waits for its start.
func (s *RunStatistics) recordEntry(module int32, queueTime, wait time.Duration) {
	s.QueueTimes[module][min(queueTime/time.Millisecond, maxMilliseconds-1)]++
	s.BatchWaits[module][min(wait/time.Millisecond, maxMilliseconds-1)]++
}

// recordOrderChange records that a module's queue is now served highest or lowest budget first.
func (s *RunStatistics) recordOrderChange(now time.Duration, module int32, highestFirst bool) {
	s.OrderChanges = append(s.OrderChanges, OrderChange{now, module, highestFirst})
}

// Statistics returns the statistics of the run so far. The simulator puts them into its report.
func (p *Policy) Statistics() *RunStatistics { return p.planner.statistics }
