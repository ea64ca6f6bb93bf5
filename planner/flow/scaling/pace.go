package scaling

import (
	"errors"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// Pace says how fast a policy follows the arrivals: over which time it averages queueing and rates,
// how long a rate counts, and how far ahead it is extrapolated.
type Pace struct {
	QueueWindow, RateWindow, HoldTime, Lookahead time.Duration
}

// PaceFor returns the pace at which replicas come and go (windows and times to hold) for arrivals whose count
// per second varies with coefficient of variation cv. PARD advises the window of queueing (section 5.4): 5 to 7
// s for stable traces, 3 to 5 s for bursty ones, 1 to 3 s for the most bursty. The other times were best on a
// trace of each of the three kinds (bench/pard, part hours).
func PaceFor(cv float64) Pace {
	switch {
	case cv < .5:
		return Pace{QueueWindow: 5 * time.Second, RateWindow: 8 * time.Second, HoldTime: 30 * time.Second}
	case cv < 1:
		return Pace{QueueWindow: 4 * time.Second, RateWindow: 8 * time.Second, HoldTime: 30 * time.Second, Lookahead: 3 * time.Second}
	}
	return Pace{QueueWindow: 2 * time.Second, RateWindow: 4 * time.Second, HoldTime: 8 * time.Second}
}

// ArrivalPace returns the pace at which replicas come and go (windows and times to hold) for the workload's arrivals, by how much these
// vary in its trace. Arrivals without a trace count as stable, because a process has one rate; so do those of a trace that cannot be
// read, with a warning.
func ArrivalPace(in *kind.Problem, run *kind.SolveRun, apps formats.Applications) Pace {
	a := in.Workload.Arrivals
	if a == nil || a.Trace == "" {
		return PaceFor(0)
	}
	cv, err := rateVariation(kind.PathIn(in.WorkloadDir, a.Trace), apps)
	if err != nil {
		run.Warn("the trace of the arrivals cannot be read, so the plan is for stable ones: %v", err)
		return PaceFor(0)
	}
	p := PaceFor(cv)
	run.Assume("window: queueing is averaged over %v, for arrivals per second with a coefficient of variation of %.2f", p.QueueWindow, cv)
	return p
}

// rateVariation returns the coefficient of variation of the arrivals per second in a trace file, for the named applications: the standard
// deviation of the counts of whole seconds over their mean. If no whole second has arrivals, it returns 0.
func rateVariation(path string, apps formats.Applications) (cv float64, err error) {
	names := lists.Map(len(apps), func(i int) string { return apps[i].Name })
	t, err := arrivals.OpenTrace(path, names, arrivals.IgnoreOther())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()

	// Count the arrivals of every second.
	var seconds, sum, sumSquares, arrivalCount float64
	second := time.Duration(0)
	// Next returns the next arrival and moves on, so each turn of the loop counts one. The last second, which
	// may be cut short, is left out.
	for q := (arrivals.Request{}); t.Next(&q); arrivalCount++ {
		for q.ArrivedAt >= second+time.Second {
			seconds, sum, sumSquares = seconds+1, sum+arrivalCount, sumSquares+arrivalCount*arrivalCount
			second, arrivalCount = second+time.Second, 0
		}
	}
	if sum == 0 {
		return 0, arrivals.Err(t)
	}
	mean := sum / seconds
	return math.Sqrt(max(0, sumSquares/seconds-mean*mean)) / mean, arrivals.Err(t)
}
