package graph

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/scaling"
)

// The rule that the table is made for (docs/methods/flow.md): a decision per second, rises that exceed three
// standard deviations of the noise, rates that are wrong by 5 %.
const (
	decisionInterval = time.Second
	riseSigmas       = 3
	rateError        = .05
)

// addScaling adds to the plan's section f the table by which replicas come and go at run time: how many of each module serve at which
// rate at the entry, in requests per second of all applications, which keep their planned shares of it. It also writes the cold start
// (the time that a new replica takes) into the modules. If the option cold-start does not give that time, it adds nothing. chosen is the
// solution behind the deployment, whose models come in the order of f.Modules. pace says how fast decisions follow the arrivals.
func (r *resolvedProblem) addScaling(f *formats.FlowPlan, chosen *solution, deployment []formats.Deployed, pace scaling.Pace) {
	coldStart := r.input.Values.Time("cold-start")
	if coldStart == 0 {
		return
	}
	flowScaling := &formats.FlowScaling{EveryUS: document.Micros(decisionInterval), WindowUS: document.Micros(pace.RateWindow), HoldUS: document.Micros(pace.HoldTime), LookaheadUS: document.Micros(pace.Lookahead), RiseSigmas: riseSigmas}
	// modelRates has the tasks per second of each model, and totalWeight the requests per second of all applications, at rate factor 1.
	modelRates, totalWeight, plannedRate := r.problem.modelRates(chosen), 0., 0.
	for a := range r.problem.apps {
		totalWeight, plannedRate = totalWeight+r.problem.apps[a].weight, plannedRate+f.Applications[a].RPS
	}

	// The table ends at maxRate, where some module has no further replica.
	var cumulativeRates [][]float64
	maxRate := math.Inf(1)
	for i := range deployment {
		u := slices.IndexFunc(r.problem.models, func(m model) bool { return m.name == deployment[i].Model })
		tasksPerRequest := modelRates[u] / totalWeight
		replicaRates := cumulativeReplicaRates(&deployment[i], tasksPerRequest)
		cumulativeRates, maxRate = append(cumulativeRates, replicaRates), min(maxRate, replicaRates[len(replicaRates)-1])
		flowScaling.MaxWorkers += len(replicaRates)
		f.Modules[i].ColdStartUS = document.Micros(coldStart)
	}
	// No module needs to carry more than maxRate.
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
// two, and so on, in the order in which they are added at run time. tasksPerRequest is how many tasks for the model a request at the
// entry has on average.
func cumulativeReplicaRates(d *formats.Deployed, tasksPerRequest float64) []float64 {
	var rates []float64
	sum := 0.
	for _, l := range d.Pipelines {
		for range l.Stages[0].Replicas {
			sum += l.RPS / float64(l.Stages[0].Replicas) / tasksPerRequest
			rates = append(rates, sum)
		}
	}
	return rates
}
