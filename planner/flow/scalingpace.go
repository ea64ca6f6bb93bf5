package flow

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
)

// scalingPace says how fast a policy follows the arrivals: over which time it averages queueing and rates,
// how long a rate counts, and how far ahead it is extrapolated.
type scalingPace struct {
	queueWindow, rateWindow, holdTime, lookahead time.Duration
}

// paceFor returns the pace at which replicas come and go (windows and times to hold) for arrivals whose count
// per second varies with coefficient of variation cv. PARD advises the window of queueing (section 5.4): 5 to 7
// s for stable traces, 3 to 5 s for bursty ones, 1 to 3 s for the most bursty. The other times were best on a
// trace of each of the three kinds (bench/pard, part hours).
func paceFor(cv float64) scalingPace {
	switch {
	case cv < .5:
		return scalingPace{queueWindow: 5 * time.Second, rateWindow: 8 * time.Second, holdTime: 30 * time.Second}
	case cv < 1:
		return scalingPace{queueWindow: 4 * time.Second, rateWindow: 8 * time.Second, holdTime: 30 * time.Second, lookahead: 3 * time.Second}
	}
	return scalingPace{queueWindow: 2 * time.Second, rateWindow: 4 * time.Second, holdTime: 8 * time.Second}
}

// arrivalPace returns the pace at which replicas come and go for the workload's arrivals, by how much these
// vary in its trace. Arrivals without a trace count as stable, because a process has one rate.
func (r *resolvedProblem) arrivalPace() scalingPace {
	a := r.input.Workload.Arrivals
	if a == nil || a.Trace == "" {
		return paceFor(0)
	}
	path := filepath.FromSlash(a.Trace)
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.input.WorkloadDir, path)
	}
	cv, err := rateVariation(path, r.applications)
	if err != nil {
		r.run.Warn("the trace of the arrivals cannot be read, so the plan is for stable ones: %v", err)
		return paceFor(0)
	}
	p := paceFor(cv)
	r.run.Assume("window: queueing is averaged over %v, for arrivals per second with a coefficient of variation of %.2f", p.queueWindow, cv)
	return p
}

// rateVariation returns the coefficient of variation of the arrivals per second in a trace, for the named
// applications: the standard deviation of the counts over their mean. It is 0 if no whole second has arrivals.
func rateVariation(path string, apps formats.Applications) (cv float64, err error) {
	var names []string
	for i := range apps {
		names = append(names, apps[i].Name)
	}
	t, err := arrivals.OpenTrace(path, names, arrivals.IgnoreOther())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()

	// Count the arrivals of every second.
	var seconds, sum, sumSquares, arrivalCount float64
	second := time.Duration(0)
	// Peek returns the next arrival and moves on, so each turn of the loop counts one. The last second, which
	// may be cut short, is left out.
	for q := (arrivals.Request{}); t.Peek(&q); arrivalCount++ {
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

// The rule that the table is made for (docs/methods.md): a decision per second, rises that exceed three
// standard deviations of the noise, rates that are wrong by 5 %.
const (
	decisionInterval = time.Second
	riseSigmas       = 3
	rateError        = .05
)

// addScaling adds to a plan, if a cold start is given, the table by which replicas come and go with the rate at
// the entry: how many of each module serve at which rate. The applications keep their planned shares of the
// rate.
func (r *resolvedProblem) addScaling(f *formats.FlowPlan, x *solution, deployment []formats.Deployed, pace scalingPace) {
	coldStart := r.input.Values.Time("cold-start")
	if coldStart == 0 {
		return
	}
	s := &formats.FlowScaling{EveryUS: document.Micros(decisionInterval), WindowUS: document.Micros(pace.rateWindow), HoldUS: document.Micros(pace.holdTime), LookaheadUS: document.Micros(pace.lookahead), RiseSigmas: riseSigmas}
	rates, totalWeight, plannedRate := r.problem.modelRates(x), 0., 0.
	for a := range r.problem.apps {
		totalWeight, plannedRate = totalWeight+r.problem.apps[a].weight, plannedRate+f.Applications[a].RPS
	}

	// The table ends where some module has no further replica.
	var cumulativeRates [][]float64
	maxRate := math.Inf(1)
	for i := range deployment {
		u := slices.IndexFunc(r.problem.models, func(m model) bool { return m.name == deployment[i].Model })
		replicaRates := cumulativeReplicaRates(&deployment[i], rates[u]/totalWeight)
		cumulativeRates, maxRate = append(cumulativeRates, replicaRates), min(maxRate, replicaRates[len(replicaRates)-1])
		s.MaxWorkers += len(replicaRates)
		f.Modules[i].ColdStartUS = document.Micros(coldStart)
	}
	for _, replicaRates := range cumulativeRates {
		for n := range replicaRates {
			replicaRates[n] = min(replicaRates[n], maxRate)
		}
	}
	s.Table = ScalingTable(cumulativeRates, r.input.Values.Number("headroom"), rateError, maxRate)
	s.Start = scalingRow(s, plannedRate).Replicas
	f.Scaling = s
}

// cumulativeReplicaRates returns the rate at the entry that the first replica of a module carries, the
// first two, and so on, in the order in which they are added. modelShare is how many tasks of the module a
// request has.
func cumulativeReplicaRates(d *formats.Deployed, modelShare float64) []float64 {
	var rates []float64
	sum := 0.
	for _, l := range d.Pipelines {
		for range l.Stages[0].Replicas {
			sum += l.RPS / float64(l.Stages[0].Replicas) / modelShare
			rates = append(rates, sum)
		}
	}
	return rates
}
