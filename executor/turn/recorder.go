package turn

import (
	"cmp"
	"slices"
	"time"

	"inferplan/policy"
)

// serviceRecorder records the actual times of a run, for the simulator.
type recorder struct {
	runs    [][][]*RecordedRun // [stage][batch-1]
	Arrived []time.Duration    // arrivals of requests, in the order in which the policy was told
	ingress []time.Duration
	egress  []time.Duration
	Loads   [][]RecordedRun // by network
}

// RecordedRun is a run or a load. Start counts from the first request.
type RecordedRun struct{ Start, Took, told time.Duration }

// NewRecorder returns a recorder for the tables of a plan.
func NewRecorder(t *policy.Tables) *recorder {
	r := &recorder{Loads: make([][]RecordedRun, len(t.Networks)), runs: make([][][]*RecordedRun, len(t.Stages))}
	for i := range r.runs {
		r.runs[i] = make([][]*RecordedRun, len(t.Stages[i].Infer))
	}
	return r
}

// FirstArrival returns when the first request arrived, and 0 before that.
func (r *recorder) First() time.Duration {
	if len(r.Arrived) == 0 {
		return 0
	}
	return r.Arrived[0]
}

// RecordRun records a run. When the policy is told of it is recorded later.
func (r *recorder) Ran(stage int32, size int, start, took time.Duration) *RecordedRun {
	if size > len(r.runs[stage]) {
		return nil
	}
	run := &RecordedRun{Start: start - r.First(), Took: took}
	r.runs[stage][size-1] = append(r.runs[stage][size-1], run)
	return run
}

// recordArrival records a request and when the policy is told of it.
func (r *recorder) heard(arrived, now time.Duration) {
	r.Arrived, r.ingress = append(r.Arrived, arrived), append(r.ingress, now-arrived)
}

// recordEgress records the time between the end of the last stage and the answer.
func (r *recorder) overhead(b *Batch, ended, answered time.Duration) {
	r.egress = append(r.egress, answered-ended)
}

// ServiceTimes holds the actual times of a run, in the form that the simulator takes (sim.Samples, sim.Config.Ingress
// and Egress). With them a simulation shows what the policy makes of this very run.
type Service struct {
	// Runs[stage][batch-1] are the times of runs, in the order of their starts, with stages as in policy.Tables: from when
	// the device was free and the run was sent until it ended.
	Runs [][][]time.Duration `json:"runs_ns"`
	// Starts are when these runs began, counted from the first request.
	Starts [][][]time.Duration `json:"starts_ns,omitempty"`
	// Transfers are the times of hand-overs into a stage, indexed likewise.
	Transfers [][][]time.Duration `json:"transfers_ns,omitempty"`
	// ReportDelays are the times from the end of a run until the policy was told of it, for plans whose requests have
	// several tasks.
	Told [][][]time.Duration `json:"told_ns,omitempty"`
	// Loads[network] are the times of loads at run time: from when they were ordered and the load before was over until the
	// policy was told of their end. LoadStarts are when these began, as Starts.
	Loads      [][]time.Duration `json:"loads_ns,omitempty"`
	LoadStarts [][]time.Duration `json:"load_starts_ns,omitempty"`
	// FirstArrival is when the first request arrived on the policy's clock. Its time windows begin at 0 of that clock.
	First time.Duration `json:"first_ns,omitempty"`
	// Arrivals are counted from the first one, in the order in which the policy was told of them. ArrivalDelays are the
	// times until it was told.
	Arrived []time.Duration `json:"arrived_ns,omitempty"`
	Heard   []time.Duration `json:"heard_ns,omitempty"`
	// Ingress is the median time from a request's arrival until the policy is told of it, Egress from the end of its batch
	// until its answer is complete.
	Ingress time.Duration `json:"ingress_ns"`
	Egress  time.Duration `json:"egress_ns"`
}

// Snapshot returns a copy of the times recorded so far.
func (r *recorder) Snapshot() *Service {
	n := len(r.runs)
	s := &Service{Runs: make([][][]time.Duration, n), Starts: make([][][]time.Duration, n), Told: make([][][]time.Duration, n), Ingress: median(r.ingress), Egress: median(r.egress),
		Arrived: make([]time.Duration, len(r.Arrived)), Heard: slices.Clone(r.ingress)}
	for i, at := range r.Arrived {
		s.First, s.Arrived[i] = r.First(), at-r.First()
	}
	for i := range r.runs {
		s.Runs[i], s.Starts[i], s.Told[i] = make([][]time.Duration, len(r.runs[i])), make([][]time.Duration, len(r.runs[i])), make([][]time.Duration, len(r.runs[i]))
		for b, list := range r.runs[i] {
			var runs []RecordedRun
			for _, run := range list {
				runs = append(runs, *run)
			}
			s.Runs[i][b], s.Starts[i][b], s.Told[i][b] = byStart(runs)
		}
	}
	if !slices.ContainsFunc(r.runs, func(of [][]*RecordedRun) bool { return slices.ContainsFunc(of, anyTold) }) {
		s.Told = nil
	}
	for _, list := range r.Loads {
		took, starts, _ := byStart(slices.Clone(list))
		s.Loads, s.LoadStarts = append(s.Loads, took), append(s.LoadStarts, starts)
	}
	return s
}

// hasReports returns true if it was recorded for one of the runs when the policy was told of it.
func anyTold(list []*RecordedRun) bool {
	return slices.ContainsFunc(list, func(run *RecordedRun) bool { return run.told > 0 })
}

// splitByStart sorts runs by their starts and returns their fields as lists. Runs of several devices end in another
// order.
func byStart(list []RecordedRun) (took, starts, told []time.Duration) {
	slices.SortStableFunc(list, func(a, b RecordedRun) int { return cmp.Compare(a.Start, b.Start) })
	for _, run := range list {
		took, starts, told = append(took, run.Took), append(starts, run.Start), append(told, run.told)
	}
	return took, starts, told
}

// median returns the median; 0 for an empty list.
func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)/2]
}
