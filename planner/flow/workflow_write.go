package flow

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	dynamic "inferplan/policy/workflow"
	"inferplan/solver/milp"
)

// outcome returns the batches and the placement as the parts of a plan.
func (w *workflowProblem) outcome(b *chosenBatches, p *placed) (*kind.Outcome, error) {
	algorithm, policy := w.in.Values.Word("algorithm"), formats.PolicySpec{Name: dynamic.Default}
	if algorithm == AlgorithmShares {
		policy.Name = "static"
	}

	// The objective is the price or the rate factor.
	sense, scale := milp.Minimize, 1.0
	value, bound := b.price, b.least
	if w.objective == "throughput" {
		sense = milp.Maximize
		value, bound = b.factor()
		scale = value
	}
	gap := milp.RelativeGap(sense, value, bound)
	o := &kind.Outcome{
		Algorithm: algorithm, Values: w.in.Values, Objective: formats.Objective{Name: w.objective, Value: value, Bound: &bound, Gap: &gap},
		Sense: sense, StoppedBy: b.stopped, Pools: w.whole, Policy: policy,
		Phases: []kind.Phase{{Name: "batches", Nodes: b.nodes, Iterations: b.iterations, Value: value, Bound: bound}, {Name: "placement", Nodes: p.nodes, Value: p.served, Bound: p.bound}},
	}

	// Services as modules, with their deployment.
	section := &formats.FlowPlan{Lambda: quantile, WindowUS: document.Micros(paceOf(0).queueing)}
	for s := range w.services {
		for k := range w.services[s].on {
			o.Considered += len(w.services[s].on[k].sizes)
		}
		o.Deployment = append(o.Deployment, w.deployed(s, b, p))
		section.Modules = append(section.Modules, w.module(s, b, p))
	}

	// Applications, with the paths that their requests are expected to take.
	for i := range w.apps {
		a := &w.apps[i]
		planned := formats.FlowApplication{Served: formats.Served{Model: a.asked.Name, SLOUS: document.Micros(a.slo), MarginUS: document.Micros(a.margin),
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

	// If language models drain, or models have devices alone, the bound does not hold for all plans.
	o.Section = section
	switch {
	case drains(o.Deployment, section.Modules):
		w.run.Assume("a language model drains before its device runs another model: what devices carry without queueing leaves that out")
		o.Objective.Bound, o.Objective.Gap = nil, nil
		if o.StoppedBy != milp.StoppedByInterrupt {
			o.StoppedBy = milp.StoppedByWork
		}
	case len(w.partitions) > len(w.whole):
		o.Objective.BoundAmong = "with these devices for models alone"
	}
	if all := sum(p.busy); p.served < all*(1-1e-6) {
		w.run.Warn("memory: %.3g %% of the time runs what devices hold at the start, at most %.3g %% can; the rest is loaded at run time", 100*p.served/all, 100*p.bound/all)
	}
	return o, nil
}

// sumOf returns the sum of values.
func sum(list []float64) float64 {
	out := 0.0
	for _, x := range list {
		out += x
	}
	return out
}

// flowModule returns what a plan says of a service beside its batches: memory, load times, and the devices
// that hold it at the start.
func (w *workflowProblem) module(s int, b *chosenBatches, p *placed) formats.FlowModule {
	sv := &w.services[s]
	m := formats.FlowModule{Model: sv.name, WeightBytes: sv.weights, NearUS: document.Micros(sv.near), FarUS: document.Micros(sv.far), Session: sv.profile.Session}
	llm := w.llms[sv.name]
	if llm != nil {
		m.Generation = &formats.FlowGeneration{PromptMean: llm.PromptMean, OutputMean: llm.OutputMean, KVBytesPerToken: llm.KVBytesPerToken}
	}
	for k := range sv.on {
		if at := b.batch[s][k]; at != nowhere {
			on := formats.FlowKind{Device: w.pools[k].Device, LoadUS: document.Micros(sv.on[k].load), WorkingBytes: sv.on[k].memory(at, sv.weights)}
			m.ColdStartUS, m.WorkingBytes = max(m.ColdStartUS, on.LoadUS), max(m.WorkingBytes, on.WorkingBytes)
			if len(w.whole) > 1 {
				m.Kinds = append(m.Kinds, on)
			}
			if llm != nil {
				w.run.WarnInstance(sv.name, llm.On(on.Device))
				m.Generation.Instances = append(m.Generation.Instances, instance(llm.On(on.Device), sv.on[k].sizes[at].batch, on.WorkingBytes/llm.KVBytesPerToken))
			}
		}

		// The placement counts the devices of each partition. The plan counts those of all pools in a row.
		first := w.partitions[k].first
		for i := range w.partitions[k].pool {
			first += w.whole[i].Count
		}
		for d, kind := range p.kinds {
			if kind == k && slices.Contains(p.held[d], s) {
				m.Resident = append(m.Resident, first+d-slices.Index(p.kinds, k))
			}
		}
	}
	return m
}

// plannedInstance returns a language model on a kind of devices with the planned number of concurrent
// sequences and KV memory.
func instance(in *formats.LLMInstance, sequences int, kv int64) formats.LLMInstance {
	out := *in
	out.Sequences, out.KVTokens, out.KVSource = sequences, kv, formats.KVComputed
	out.Loads, out.Fit, out.OneBatch = nil, nil, nil // the module has its load
	return out
}

// workingMemory returns the bytes that the largest of the first k+1 useful batches takes beside the
// weights.
func (on *onKind) memory(k int, weights int64) int64 {
	most := int64(0)
	for i := range on.costs.Batches {
		most = max(most, on.costs.Batches[i].Memory-weights)
		if on.costs.Batches[i].Batch >= on.sizes[k].batch {
			break
		}
	}
	return most
}

// deployedService returns where a service may run: on every device of the partitions that have a batch for
// it.
func (w *workflowProblem) deployed(s int, b *chosenBatches, p *placed) formats.Deployed {
	sv := &w.services[s]
	o := sv.profile.Deployed()
	o.Model = sv.name
	for k := range sv.on {
		if b.batch[s][k] == nowhere {
			continue
		}
		on, size := &sv.on[k], &sv.on[k].sizes[b.batch[s][k]]
		busy := max(p.time[s][k], rounding)
		stage := formats.Stage{Blocks: [2]int{0, o.NumBlocks}, Device: w.pools[k].Device, Share: 1, Replicas: b.counts[k], GPUs: busy, RPS: busy / size.each(),
			Placement: []formats.Placement{{First: w.partitions[k].first, PerDevice: 1, Replicas: b.counts[k]}}}
		on.costs.Write(&stage, sv.profile, size.batch)
		o.Pipelines = append(o.Pipelines, formats.Pipeline{Batch: size.batch, RPS: stage.RPS, LatencyUS: stage.InferUS[size.batch-1], Stages: []formats.Stage{stage}})
	}
	return o
}
