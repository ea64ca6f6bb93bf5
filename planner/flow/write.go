package flow

import (
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/policy/drop"
	"inferplan/solver/milp"
)

// waitQuantile is the plan's lambda: the quantile of the waiting time that PARD's State Planner uses
// (section 5.4).
const waitQuantile = .1

// outcome returns a result as the parts of a plan.
func (r *resolvedProblem) outcome(result *solveResult) *kind.Outcome {
	p := result.problem
	if p == nil {
		p = r.problem
	}

	// For throughput the planned rates are the weights times the factor that was reached.
	sense, scale := milp.Minimize, 1.0
	if r.objective == "throughput" {
		sense, scale = milp.Maximize, result.value
	}
	bound := result.bound
	o := &kind.Outcome{
		Algorithm: r.input.Values.Word("algorithm"), Values: r.input.Values, Objective: formats.Objective{Name: r.objective, Value: result.value},
		Sense: sense, StoppedBy: result.stoppedBy, Pools: r.pools, Policy: formats.PolicySpec{Name: drop.Default},
		Phases: []kind.Phase{{Name: "program", Nodes: result.nodes, Iterations: result.iterations, Value: result.value, Bound: bound}},
	}
	if !math.IsNaN(bound) {
		gap := milp.RelativeGap(sense, result.value, bound)
		o.Objective.Bound, o.Objective.Gap = &bound, &gap
	}

	// Count the templates that the search could choose from.
	for u := range r.problem.models {
		for l := range r.problem.models[u].levels {
			for _, t := range r.problem.models[u].levels[l].templates {
				if t.rate > 0 {
					o.Candidates++
				}
			}
		}
	}

	// Write the applications with the chosen models, and deploy each model once.
	pace := r.arrivalPace()
	section := &formats.FlowPlan{Lambda: waitQuantile, WindowUS: document.Micros(pace.queueWindow)}
	firstDevice := result.solution.firstOwnDevices(p)
	deployedModels := map[int]bool{}
	for a := range r.problem.apps {
		app, w := &r.problem.apps[a], &r.applications[a]
		plannedApp := formats.FlowApplication{Served: formats.Served{Model: w.Name, SLOUS: document.Micros(app.slo), MarginUS: document.Micros(app.margin),
			Percentile: w.Percentile, Weight: w.Weight, RPS: app.weight * scale}}
		for i, m := range w.Modules {
			c := app.modules[i].choices[result.solution.choice[a][i]]
			m.Model, m.Variants = r.problem.models[c.model].name, nil
			plannedApp.Modules = append(plannedApp.Modules, m)
			if !deployedModels[c.model] {
				deployedModels[c.model] = true
				o.Deployment = append(o.Deployment, r.deployedModel(p, result.solution, c.model, firstDevice))
				section.Modules = append(section.Modules, formats.FlowModule{Model: m.Model, Accuracy: c.accuracy})
			}
		}
		section.Applications = append(section.Applications, plannedApp)
		if requestedRate := w.RPS; plannedApp.RPS < requestedRate {
			r.run.Warn("%s: %.6g requests/s are planned, the workload asks for %.6g", w.Name, plannedApp.RPS, requestedRate)
		}
	}
	r.addScaling(section, result.solution, o.Deployment, pace)
	o.Section = section
	return o
}

// deployedModel returns the deployment of model u. It takes the next free devices of each pool, which begin
// at firstDevice, and moves that on. If the model takes turns, it has the shared devices instead.
func (r *resolvedProblem) deployedModel(p *problem, x *solution, u int, firstDevice []int) formats.Deployed {
	m := &r.measuredModels[u]
	o := m.profile.NewDeployment()
	o.Model = r.problem.models[u].name
	for k, n := range x.devices[u] {
		timeShared := x.timeShares != nil && x.timeShares[u][k] > 0
		if n == 0 && !timeShared {
			continue
		}
		t := &p.models[u].levels[x.level[u]].templates[k]
		s := formats.Stage{Blocks: [2]int{0, o.NumBlocks}, Device: r.pools[k].Device, Share: t.sharesPerDevice, Replicas: n * t.sharesPerDevice, GPUs: float64(n),
			RPS: float64(n) * t.rate, Placement: []formats.Placement{{FirstDevice: firstDevice[k], PerDevice: t.sharesPerDevice, Replicas: n * t.sharesPerDevice}}}
		if timeShared {
			sharedDevices := x.sharedDevices(p, k)
			s.Replicas, s.GPUs, s.RPS, s.Placement = sharedDevices, x.timeShares[u][k], x.timeShares[u][k]*t.rate, []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: sharedDevices}}
		}
		firstDevice[k] += n
		m.costs[k][t.sharesPerDevice-1].WriteStage(&s, m.profile, t.batch)
		o.Pipelines = append(o.Pipelines, formats.Pipeline{Batch: t.batch, RPS: s.RPS, LatencyUS: s.InferUS[t.batch-1], Stages: []formats.Stage{s}})
	}
	return o
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
