package graph

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/scaling"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/policy/drop"
)

// outcome turns the result of a search into the parts of a plan: objective and bound, the applications with the models chosen, the
// deployment of these, and the table by which replicas come and go. An application that gets less than the rate it asks for is named in a
// warning.
func (r *resolvedProblem) outcome(result *solveResult) *kind.Outcome {
	// The levels (limits on batch times) and devices of the solution belong to the problem levelProblem. A search in which models may take
	// turns makes one with more levels, but has the applications, choices and models of r.problem.
	levelProblem := result.problem
	if levelProblem == nil {
		levelProblem = r.problem
	}

	// For throughput the planned rates are the weights times the factor that was reached.
	scale := 1.0
	if r.objective == "throughput" {
		scale = result.value
	}
	o := &kind.Outcome{
		Algorithm: r.input.Values.Word("algorithm"), Values: r.input.Values, Objective: kind.BoundedObjective(r.objective, result.value, result.bound),
		Sense: kind.SenseOf(r.objective), StoppedBy: result.stoppedBy, Pools: r.pools, Policy: formats.PolicySpec{Name: drop.Default},
		Phases: []kind.Phase{{Name: "program", Nodes: result.nodes, Iterations: result.iterations, Value: result.value, Bound: result.bound}},
	}

	if o.Objective.Bound != nil {
		o.Objective.BoundAmong = terms.MarginScope(r.input.Values)
	}

	// Write the applications with the chosen models, and deploy each model once.
	o.Candidates = r.problem.templateCount()
	pace := scaling.ArrivalPace(r.input, r.run, r.applications)
	// Lambda and the window say by which quantile of the waits, and over which time, the policy estimates queueing at run time.
	section := &formats.FlowPlan{Lambda: terms.WaitQuantile, WindowUS: document.Micros(pace.QueueWindow)}
	firstDevice := result.solution.firstOwnDevices(levelProblem)
	deployedModels := map[int]bool{}
	for a := range r.problem.apps {
		planned := r.plannedApplication(result.solution, a, scale)
		section.Applications = append(section.Applications, planned)
		for i := range planned.Modules {
			c := r.problem.apps[a].modules[i].choices[result.solution.choice[a][i]]
			if !deployedModels[c.model] {
				deployedModels[c.model] = true
				o.Deployment = append(o.Deployment, r.deployedModel(levelProblem, result.solution, c.model, firstDevice))
				section.Modules = append(section.Modules, formats.FlowModule{Model: planned.Modules[i].Model, Accuracy: c.accuracy})
			}
		}
		if requestedRate := r.applications[a].RPS; planned.RPS < requestedRate {
			r.run.Warn("%s: %.6g requests/s are planned, the workload asks for %.6g", planned.Model, planned.RPS, requestedRate)
		}
	}
	r.addScaling(section, result.solution, o.Deployment, pace)
	o.Section = section
	return o
}

// templateCount returns the number of templates (a model on a device at a batch size) that a search chooses
// from.
func (p *problem) templateCount() int {
	count := 0
	for u := range p.models {
		for l := range p.models[u].levels {
			count += lists.Count(len(p.models[u].levels[l].templates), func(i int) bool { return p.models[u].levels[l].templates[i].rate > 0 })
		}
	}
	return count
}

// plannedApplication returns application a with the models that do its modules' tasks. scale is the factor on the
// weights that makes them rates.
func (r *resolvedProblem) plannedApplication(x *solution, a int, scale float64) formats.FlowApplication {
	app, w := &r.problem.apps[a], &r.applications[a]
	planned := formats.FlowApplication{Served: formats.Served{Model: w.Name, SLOUS: document.Micros(app.slo), MarginUS: document.Micros(app.margin),
		Percentile: w.Percentile, Weight: w.Weight, RPS: app.weight * scale}}
	for i, m := range w.Modules {
		// In the plan a module has the model that was chosen, and no variants.
		m.Model, m.Variants = r.problem.models[app.modules[i].choices[x.choice[a][i]].model].name, nil
		planned.Modules = append(planned.Modules, m)
	}
	return planned
}

// deployedModel returns the deployment of model u in solution x, one pipeline for each pool where it runs. It takes the next free devices
// of each pool, of which firstDevice has the first, and moves that on. If the model takes turns with others, it has the shared devices
// instead, which are the first of the pool. p is the problem that the solution's levels belong to.
func (r *resolvedProblem) deployedModel(p *problem, x *solution, u int, firstDevice []int) formats.Deployed {
	model := &r.measuredModels[u]
	deployment := model.profile.NewDeployment()
	deployment.Model = r.problem.models[u].name
	for k, n := range x.devices[u] {
		timeShared := x.timeShares != nil && x.timeShares[u][k] > 0
		if n == 0 && !timeShared {
			continue
		}
		chosenTemplate := &p.models[u].levels[x.level[u]].templates[k]
		s := formats.Stage{Device: r.pools[k].Device, Share: chosenTemplate.sharesPerDevice, Replicas: n * chosenTemplate.sharesPerDevice, GPUs: float64(n),
			RPS: float64(n) * chosenTemplate.rate, Placement: []formats.Placement{{FirstDevice: firstDevice[k], PerDevice: chosenTemplate.sharesPerDevice, Replicas: n * chosenTemplate.sharesPerDevice}}}
		if timeShared {
			sharedDevices := x.sharedDevices(p, k)
			s.Replicas, s.GPUs, s.RPS, s.Placement = sharedDevices, x.timeShares[u][k], x.timeShares[u][k]*chosenTemplate.rate, []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: sharedDevices}}
		}
		// Devices of its own come after those that are taken.
		firstDevice[k] += n
		terms.AddStage(&deployment, s, model.profile, &model.costs[k][chosenTemplate.sharesPerDevice-1], chosenTemplate.batch)
	}
	return deployment
}

// firstOwnDevices returns, by pool, the first device that a model can have to itself. Devices on which
// modules take turns come before it.
func (s *solution) firstOwnDevices(p *problem) []int {
	firstDevice := make([]int, len(p.pools))
	for k := range firstDevice {
		for u := range s.timeShares {
			if s.timeShares[u][k] > 0 {
				firstDevice[k] = s.sharedDevices(p, k)
			}
		}
	}
	return firstDevice
}

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
