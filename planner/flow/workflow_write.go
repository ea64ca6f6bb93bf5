package flow

import (
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/stages"
	dynamic "inferplan/policy/workflow"
	"inferplan/solver/milp"
)

// outcome is what was found, as the parts of a plan.
func (w *workflowProblem) outcome(b *chosenBatches, p *placed) (*kind.Outcome, error) {
	algorithm, policy := w.in.Values.Word("algorithm"), formats.PolicySpec{Name: dynamic.Default}
	if algorithm == AlgorithmShares {
		policy.Name = "static"
	}
	sense, scale := milp.Minimize, 1.0
	value, bound := float64(p.devices)*w.price, math.Ceil(b.bound*(1-1e-9))*w.price
	if w.objective == "throughput" {
		sense = milp.Maximize
		value, bound = b.factor(p.devices)
		scale = value
	}
	gap := milp.RelativeGap(sense, value, bound)
	o := &kind.Outcome{
		Algorithm: algorithm, Values: w.in.Values, Objective: formats.Objective{Name: w.objective, Value: value, Bound: &bound, Gap: &gap},
		Sense: sense, StoppedBy: b.stopped, Pools: []formats.Pool{w.pool}, Policy: policy,
		Phases: []kind.Phase{{Name: "batches", Nodes: b.nodes, Iterations: b.iterations, Value: value, Bound: bound}, {Name: "placement", Nodes: p.nodes, Value: p.served, Bound: p.bound}},
	}
	section := &formats.FlowPlan{Lambda: quantile, WindowUS: formats.Micros(paceOf(0).queueing)}
	for s := range w.services {
		sv := &w.services[s]
		o.Considered += len(sv.sizes)
		o.Deployment = append(o.Deployment, w.deployed(s, b, p))
		m := formats.FlowModule{Model: sv.name, ColdStartUS: formats.Micros(sv.load), WeightBytes: sv.weights, WorkingBytes: sv.memory(b.chosen[s]),
			NearUS: formats.Micros(sv.near), FarUS: formats.Micros(sv.far), Session: sv.profile.Session}
		for d := range p.held {
			if slices.Contains(p.held[d], s) {
				m.Resident = append(m.Resident, d)
			}
		}
		section.Modules = append(section.Modules, m)
	}
	for i := range w.apps {
		a := &w.apps[i]
		planned := formats.FlowApplication{Served: formats.Served{Model: a.asked.Name, SLOUS: formats.Micros(a.slo), MarginUS: formats.Micros(a.margin),
			Percentile: a.asked.Percentile, Weight: a.asked.Weight, RPS: a.weight * scale}, Parameters: a.asked.Parameters, Segments: a.asked.Segments}
		section.Applications = append(section.Applications, planned)
		if planned.RPS < a.asked.RPS*(1-1e-9) {
			w.run.Warn("%s: %.6g requests/s are planned, the workload asks for %.6g", a.asked.Name, planned.RPS, a.asked.RPS)
		}
		ways, err := w.ways(a)
		if err != nil {
			return nil, err
		}
		section.Transitions = append(section.Transitions, formats.WaysOf{Application: a.asked.Name, Ways: ways})
	}
	o.Section = section
	if all := sum(p.busy); p.served < all*(1-1e-6) {
		w.run.Warn("memory: %.3g %% of the time runs what devices hold at the start, at most %.3g %% can; the rest is loaded at run time", 100*p.served/all, 100*p.bound/all)
	}
	return o, nil
}

func sum(list []float64) float64 {
	out := 0.0
	for _, x := range list {
		out += x
	}
	return out
}

// memory is what the largest batch up to a size takes beside the weights.
func (s *service) memory(k int) int64 {
	most := int64(0)
	for i := range s.costs.Batches {
		if b := &s.costs.Batches[i]; b.Batch <= s.sizes[k].batch {
			most = max(most, b.Memory-s.weights)
		}
	}
	return most
}

// deployed is where a service may run: on every device of the plan.
func (w *workflowProblem) deployed(s int, b *chosenBatches, p *placed) formats.Deployed {
	sv, k := &w.services[s], &w.services[s].sizes[b.chosen[s]]
	o := formats.Deployed{Model: sv.name, Inputs: sv.profile.Inputs, Outputs: sv.profile.Outputs, NumBlocks: len(sv.profile.Blocks)}
	if sv.profile.Source != nil {
		o.SHA256 = sv.profile.Source.SHA256
	}
	busy := max(p.busy[s], rounding)
	stage := formats.Stage{Blocks: [2]int{0, o.NumBlocks}, Device: w.pool.Device, Share: 1, Replicas: p.devices, GPUs: busy, RPS: busy / k.each(),
		Placement: []formats.Placement{{First: 0, PerDevice: 1, Replicas: p.devices}}}
	for n := 1; n <= k.batch; n++ {
		stage.InferUS = append(stage.InferUS, formats.Micros(stages.Infer(&sv.costs, n, 0, o.NumBlocks)))
	}
	for _, d := range sv.costs.At(k.batch).Blocks {
		stage.BlockUS = append(stage.BlockUS, formats.Micros(d))
	}
	stage.Estimated = stages.Estimated(&sv.costs, k.batch, 0, o.NumBlocks)
	o.Pipelines = []formats.Pipeline{{Batch: k.batch, RPS: stage.RPS, LatencyUS: formats.Micros(k.infer), Stages: []formats.Stage{stage}}}
	return o
}
