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
type pace struct {
	queueing, window, hold, ahead time.Duration
}

// paceFor returns the pace for arrivals per second with a coefficient of variation cv. PARD advises the
// window of queueing (section 5.4): 5 to 7 s for stable traces, 3 to 5 s for bursty ones, 1 to 3 s for the
// most bursty. The other times were best on a trace of each of the three kinds (bench/pard, part hours).
func paceOf(cv float64) pace {
	switch {
	case cv < .5:
		return pace{queueing: 5 * time.Second, window: 8 * time.Second, hold: 30 * time.Second}
	case cv < 1:
		return pace{queueing: 4 * time.Second, window: 8 * time.Second, hold: 30 * time.Second, ahead: 3 * time.Second}
	}
	return pace{queueing: 2 * time.Second, window: 4 * time.Second, hold: 8 * time.Second}
}

// arrivalPace returns the pace for the workload's arrivals. Arrivals without a trace count as stable,
// because a process has one rate.
func (r *resolved) pace() pace {
	a := r.in.Workload.Arrivals
	if a == nil || a.Trace == "" {
		return paceOf(0)
	}
	path := filepath.FromSlash(a.Trace)
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.in.WorkloadDir, path)
	}
	cv, err := variation(path, r.asked)
	if err != nil {
		r.run.Warn("the trace of the arrivals cannot be read, so the plan is for stable ones: %v", err)
		return paceOf(0)
	}
	p := paceOf(cv)
	r.run.Assume("window: queueing is averaged over %v, for arrivals per second with a coefficient of variation of %.2f", p.queueing, cv)
	return p
}

// rateVariation returns the coefficient of variation of a trace's arrivals per second.
func variation(path string, apps formats.Applications) (cv float64, err error) {
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
	var n, sum, squares, came float64
	second := time.Duration(0)
	for q := (arrivals.Request{}); t.Next(&q); came++ {
		for q.At >= second+time.Second {
			n, sum, squares = n+1, sum+came, squares+came*came
			second, came = second+time.Second, 0
		}
	}
	if sum == 0 {
		return 0, arrivals.Err(t)
	}
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean)) / mean, arrivals.Err(t)
}

// The rule that the table is made for (docs/methods.md): a decision per second, rises that exceed three
// standard deviations of the noise, rates that are wrong by 5 %.
const (
	decided = time.Second
	sigmas  = 3
	off     = .05
)

// addScaling adds the scaling table to a plan if a cold start is given: replicas then come and go by the
// rate at the entry. The applications keep their planned shares of the rate.
func (r *resolved) elastic(f *formats.FlowPlan, x *picked, deployment []formats.Deployed, at pace) {
	cold := r.in.Values.Time("cold-start")
	if cold == 0 {
		return
	}
	s := &formats.FlowScaling{EveryUS: document.Micros(decided), WindowUS: document.Micros(at.window), HoldUS: document.Micros(at.hold), LookaheadUS: document.Micros(at.ahead), RiseSigmas: sigmas}
	asked, weights, rate := r.problem.asked(x), 0., 0.
	for a := range r.problem.apps {
		weights, rate = weights+r.problem.apps[a].weight, rate+f.Applications[a].RPS
	}

	// The table ends where some module has no further replica.
	var steps [][]float64
	top := math.Inf(1)
	for i := range deployment {
		u := slices.IndexFunc(r.problem.models, func(m model) bool { return m.name == deployment[i].Model })
		list := replicas(&deployment[i], asked[u]/weights)
		steps, top = append(steps, list), min(top, list[len(list)-1])
		s.MaxWorkers += len(list)
		f.Modules[i].ColdStartUS = document.Micros(cold)
	}
	for _, list := range steps {
		for n := range list {
			list[n] = min(list[n], top)
		}
	}
	s.Table = scaled(steps, r.in.Values.Number("headroom"), off, top)
	s.Start = rowOf(s, rate).Replicas
	f.Scaling = s
}

// cumulativeReplicaRates returns the rate at the entry that the first replica of a module carries, the
// first two, and so on, in the order in which they are added. modelShare is how many tasks of the module a
// request has.
func replicas(d *formats.Deployed, part float64) []float64 {
	var out []float64
	sum := 0.
	for _, l := range d.Pipelines {
		for range l.Stages[0].Replicas {
			sum += l.RPS / float64(l.Stages[0].Replicas) / part
			out = append(out, sum)
		}
	}
	return out
}
