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
const quantile = .1

// outcome returns a result as the parts of a plan.
func (r *resolved) outcome(out *found) *kind.Outcome {
	p := out.p
	if p == nil {
		p = r.problem
	}

	// For throughput the planned rates are the weights times the factor that was reached.
	sense, scale := milp.Minimize, 1.0
	if r.objective == "throughput" {
		sense, scale = milp.Maximize, out.value
	}
	bound := out.bound
	o := &kind.Outcome{
		Algorithm: r.in.Values.Word("algorithm"), Values: r.in.Values, Objective: formats.Objective{Name: r.objective, Value: out.value},
		Sense: sense, StoppedBy: out.stopped, Pools: r.pools, Policy: formats.PolicySpec{Name: drop.Default},
		Phases: []kind.Phase{{Name: "program", Nodes: out.nodes, Iterations: out.iterations, Value: out.value, Bound: bound}},
	}
	if !math.IsNaN(bound) {
		gap := milp.RelativeGap(sense, out.value, bound)
		o.Objective.Bound, o.Objective.Gap = &bound, &gap
	}

	// Count the templates that the search could choose from.
	for u := range r.problem.models {
		for l := range r.problem.models[u].levels {
			for _, t := range r.problem.models[u].levels[l].best {
				if t.rate > 0 {
					o.Considered++
				}
			}
		}
	}

	// Write the applications with the chosen models, and deploy each model once.
	at := r.pace()
	section := &formats.FlowPlan{Lambda: quantile, WindowUS: document.Micros(at.queueing)}
	first := out.after(p)
	placed := map[int]bool{}
	for a := range r.problem.apps {
		app, w := &r.problem.apps[a], &r.asked[a]
		planned := formats.FlowApplication{Served: formats.Served{Model: w.Name, SLOUS: document.Micros(app.slo), MarginUS: document.Micros(app.margin),
			Percentile: w.Percentile, Weight: w.Weight, RPS: app.weight * scale}}
		for i, m := range w.Modules {
			c := app.nodes[i].of[out.choice[a][i]]
			m.Model, m.Variants = r.problem.models[c.model].name, nil
			planned.Modules = append(planned.Modules, m)
			if !placed[c.model] {
				placed[c.model] = true
				o.Deployment = append(o.Deployment, r.deployed(p, out.picked, c.model, first))
				section.Modules = append(section.Modules, formats.FlowModule{Model: m.Model, Accuracy: c.accuracy})
			}
		}
		section.Applications = append(section.Applications, planned)
		if asked := w.RPS; planned.RPS < asked {
			r.run.Warn("%s: %.6g requests/s are planned, the workload asks for %.6g", w.Name, planned.RPS, asked)
		}
	}
	r.elastic(section, out.picked, o.Deployment, at)
	o.Section = section
	return o
}

// deployedModel returns the deployment of model u. It takes the next free devices of each pool, which begin
// at firstDevice, and moves that on. If the model takes turns, it has the shared devices instead.
func (r *resolved) deployed(p *problem, x *picked, u int, first []int) formats.Deployed {
	m := &r.measured[u]
	o := m.profile.Deployed()
	o.Model = r.problem.models[u].name
	for k, n := range x.devices[u] {
		turns := x.time != nil && x.time[u][k] > 0
		if n == 0 && !turns {
			continue
		}
		t := &p.models[u].levels[x.level[u]].best[k]
		s := formats.Stage{Blocks: [2]int{0, o.NumBlocks}, Device: r.pools[k].Device, Share: t.share, Replicas: n * t.share, GPUs: float64(n),
			RPS: float64(n) * t.rate, Placement: []formats.Placement{{First: first[k], PerDevice: t.share, Replicas: n * t.share}}}
		if turns {
			g := x.group(p, k)
			s.Replicas, s.GPUs, s.RPS, s.Placement = g, x.time[u][k], x.time[u][k]*t.rate, []formats.Placement{{First: 0, PerDevice: 1, Replicas: g}}
		}
		first[k] += n
		m.costs[k][t.share-1].Write(&s, m.profile, t.batch)
		o.Pipelines = append(o.Pipelines, formats.Pipeline{Batch: t.batch, RPS: s.RPS, LatencyUS: s.InferUS[t.batch-1], Stages: []formats.Stage{s}})
	}
	return o
}

// firstOwnDevices returns, by pool, the first device that a model can have to itself. Devices on which
// modules take turns come before it.
func (s *picked) after(p *problem) []int {
	out := make([]int, len(p.pools))
	for k := range out {
		for u := range s.time {
			if s.time[u][k] > 0 {
				out[k] = s.group(p, k)
			}
		}
	}
	return out
}
