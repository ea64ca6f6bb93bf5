package graph

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/scaling"
)

// The rule that the table is made for (docs/methods.md): a decision per second, rises that exceed three
// standard deviations of the noise, rates that are wrong by 5 %.
const (
	decisionInterval = time.Second
	riseSigmas       = 3
	rateError        = .05
)

// addScaling adds to the plan's section f, if the option cold-start gives the time that a new replica takes, the table by which replicas
// come and go: how many of each module serve at which rate at the entry. It also writes the cold start into the modules. x is the
// solution behind the deployment. The applications keep their planned shares of the rate.
func (r *resolvedProblem) addScaling(f *formats.FlowPlan, x *solution, deployment []formats.Deployed, pace scaling.Pace) {
	coldStart := r.input.Values.Time("cold-start")
	if coldStart == 0 {
		return
	}
	flowScaling := &formats.FlowScaling{EveryUS: document.Micros(decisionInterval), WindowUS: document.Micros(pace.RateWindow), HoldUS: document.Micros(pace.HoldTime), LookaheadUS: document.Micros(pace.Lookahead), RiseSigmas: riseSigmas}
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
		flowScaling.MaxWorkers += len(replicaRates)
		f.Modules[i].ColdStartUS = document.Micros(coldStart)
	}
	for _, replicaRates := range cumulativeRates {
		for n := range replicaRates {
			replicaRates[n] = min(replicaRates[n], maxRate)
		}
	}
	flowScaling.Table = scaling.Table(cumulativeRates, r.input.Values.Number("headroom"), rateError, maxRate)
	flowScaling.Start = scaling.RowAt(flowScaling, plannedRate).Replicas
	f.Scaling = flowScaling
}

// cumulativeReplicaRates returns the rate at the entry, in requests per second, that the first replica of a module carries, the first
// two, and so on, in the order in which they are added at run time. modelShare is how many tasks for the model a request at the entry has
// on average.
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
