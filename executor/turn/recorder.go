package turn

import (
	"cmp"
	"slices"
	"time"

	"inferplan/policy"
)

// serviceRecorder records the actual times of a run, for the simulator.
type serviceRecorder struct {
	runs         [][][]*RecordedRun // [stage][batch-1]
	Arrivals     []time.Duration    // arrivals of requests, in the order in which the policy was told
	ingressTimes []time.Duration
	egressTimes  []time.Duration
	Loads        [][]RecordedRun // by network
}

// RecordedRun is a run or a load. Start counts from the first request.
type RecordedRun struct{ Start, Duration, toldAfter time.Duration }

// NewRecorder returns a recorder of service times for the tables of a plan: it keeps the times of all runs, by
// stage and batch size, and of loads, for simulations.
func NewRecorder(t *policy.Tables) *serviceRecorder {
	r := &serviceRecorder{Loads: make([][]RecordedRun, len(t.Networks)), runs: make([][][]*RecordedRun, len(t.Stages))}
	for i := range r.runs {
		r.runs[i] = make([][]*RecordedRun, len(t.Stages[i].Infer))
	}
	return r
}

// FirstArrival returns when the first request arrived, and 0 before that.
func (r *serviceRecorder) FirstArrival() time.Duration {
	if len(r.Arrivals) == 0 {
		return 0
	}
	return r.Arrivals[0]
}

// RecordRun records a run of a stage, with its start relative to the first arrival. It returns the record, in which the
// caller later fills in after what delay the policy was told of the run. A run of more samples than the plan has times
// for is not recorded, and RecordRun returns nil.
func (r *serviceRecorder) RecordRun(stage int32, size int, start, duration time.Duration) *RecordedRun {
	if size > len(r.runs[stage]) {
		return nil
	}
	run := &RecordedRun{Start: start - r.FirstArrival(), Duration: duration}
	r.runs[stage][size-1] = append(r.runs[stage][size-1], run)
	return run
}

// recordArrival records a request and when the policy is told of it.
func (r *serviceRecorder) recordArrival(arrivedAt, now time.Duration) {
	r.Arrivals, r.ingressTimes = append(r.Arrivals, arrivedAt), append(r.ingressTimes, now-arrivedAt)
}

// recordEgress records the time between the end of the last stage and the answer.
func (r *serviceRecorder) recordEgress(endedAt, answeredAt time.Duration) {
	r.egressTimes = append(r.egressTimes, answeredAt-endedAt)
}

// ServiceTimes holds the actual times of a run, in the form that the simulator takes (sim.Samples, sim.Config.Ingress
// and Egress). With them a simulation shows what the policy makes of this very run.
type ServiceTimes struct {
	// Runs[stage][batch-1] are the times of runs, in the order of their starts, with stages as in policy.Tables: from when
	// the device was free and the run was sent until it ended.
	Runs [][][]time.Duration `json:"runs_ns"`
	// Starts are when these runs began, counted from the first request.
	Starts [][][]time.Duration `json:"starts_ns,omitempty"`
	// Transfers are the times of hand-overs into a stage, indexed likewise.
	Transfers [][][]time.Duration `json:"transfers_ns,omitempty"`
	// ReportDelays are the times from the end of a run until the policy was told of it, for plans whose requests have
	// several tasks.
	ReportDelays [][][]time.Duration `json:"told_ns,omitempty"`
	// Loads[network] are the times of loads at run time: from when they were ordered and the load before was over until the
	// policy was told of their end. LoadStarts are when these began, as Starts.
	Loads      [][]time.Duration `json:"loads_ns,omitempty"`
	LoadStarts [][]time.Duration `json:"load_starts_ns,omitempty"`
	// FirstArrival is when the first request arrived on the policy's clock. Its time windows begin at 0 of that clock.
	FirstArrival time.Duration `json:"first_ns,omitempty"`
	// Arrivals are counted from the first one, in the order in which the policy was told of them. ArrivalDelays are the
	// times until it was told.
	Arrivals      []time.Duration `json:"arrived_ns,omitempty"`
	ArrivalDelays []time.Duration `json:"heard_ns,omitempty"`
	// Ingress is the median time from a request's arrival until the policy is told of it, Egress from the end of its batch
	// until its answer is complete.
	Ingress time.Duration `json:"ingress_ns"`
	Egress  time.Duration `json:"egress_ns"`
}

// Snapshot returns a copy of the times that were recorded so far (runs, loads, arrivals, delays of reports), in the form
// in which a simulation reads them. Runs are by stage and batch size - 1, loads by network, and arrivals from the first
// one on. Delays of reports are left out if none was recorded.
func (r *serviceRecorder) Snapshot() *ServiceTimes {
	n := len(r.runs)
	s := &ServiceTimes{Runs: make([][][]time.Duration, n), Starts: make([][][]time.Duration, n), ReportDelays: make([][][]time.Duration, n), Ingress: median(r.ingressTimes), Egress: median(r.egressTimes),
		Arrivals: make([]time.Duration, len(r.Arrivals)), ArrivalDelays: slices.Clone(r.ingressTimes)}
	for i, arrival := range r.Arrivals {
		s.FirstArrival, s.Arrivals[i] = r.FirstArrival(), arrival-r.FirstArrival()
	}
	for i := range r.runs {
		s.Runs[i], s.Starts[i], s.ReportDelays[i] = make([][]time.Duration, len(r.runs[i])), make([][]time.Duration, len(r.runs[i])), make([][]time.Duration, len(r.runs[i]))
		for b, list := range r.runs[i] {
			var runs []RecordedRun
			for _, run := range list {
				runs = append(runs, *run)
			}
			s.Runs[i][b], s.Starts[i][b], s.ReportDelays[i][b] = splitByStart(runs)
		}
	}
	if !slices.ContainsFunc(r.runs, func(bySize [][]*RecordedRun) bool { return slices.ContainsFunc(bySize, hasReports) }) {
		s.ReportDelays = nil
	}
	for _, list := range r.Loads {
		durations, starts, _ := splitByStart(slices.Clone(list))
		s.Loads, s.LoadStarts = append(s.Loads, durations), append(s.LoadStarts, starts)
	}
	return s
}

// hasReports returns true if it was recorded for one of the runs when the policy was told of it.
func hasReports(list []*RecordedRun) bool {
	return slices.ContainsFunc(list, func(run *RecordedRun) bool { return run.toldAfter > 0 })
}

// splitByStart sorts runs by their starts and returns their fields as lists. Runs of several devices end in another
// order.
func splitByStart(runs []RecordedRun) (durations, starts, delays []time.Duration) {
	slices.SortStableFunc(runs, func(a, b RecordedRun) int { return cmp.Compare(a.Start, b.Start) })
	for _, run := range runs {
		durations, starts, delays = append(durations, run.Duration), append(starts, run.Start), append(delays, run.toldAfter)
	}
	return durations, starts, delays
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
