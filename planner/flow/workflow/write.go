package workflow

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/scaling"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	dynamic "inferplan/policy/workflow"
	"inferplan/solver/milp"
)

// outcome returns the chosen batches and the placement of services (models that devices hold at the start) as the parts of a plan:
// objective and bound, deployment, modules, applications, and the policy. The bound is left out if a language model drains (has to finish
// all of its sequences before its device runs another model), because the time for that is not counted. It is limited in scope if models
// have devices alone.
func (w *workflowProblem) outcome(b *chosenBatches, p *placement) (*kind.Outcome, error) {
	algorithm, policy := w.input.Values.Word("algorithm"), formats.PolicySpec{Name: dynamic.Default}
	if algorithm == terms.AlgorithmShares {
		policy.Name = "static"
	}

	// The objective is the price or the rate factor. An application's planned rate is its weight times the rate factor, which is 1 if the
	// rates are given.
	rateFactor := 1.0
	value, bound := b.price, b.priceBound
	if w.objective == "throughput" {
		value, bound = b.rateFactor()
		rateFactor = value
	}
	result := &kind.Outcome{
		Algorithm: algorithm, Values: w.input.Values, Objective: kind.BoundedObjective(w.objective, value, bound),
		Sense: kind.SenseOf(w.objective), StoppedBy: b.stoppedBy, Pools: w.clusterPools, Policy: policy,
		Phases: []kind.Phase{{Name: "batches", Nodes: b.nodes, Iterations: b.iterations, Value: value, Bound: bound}, {Name: "placement", Nodes: p.nodes, Value: p.servedTime, Bound: p.servedBound}},
	}

	if result.Objective.Bound != nil {
		result.Objective.BoundAmong = terms.MarginScope(w.input.Values)
	}

	// Services become modules, with their deployment. The policy averages queueing over the window for stable arrivals (a variation of 0).
	section := &formats.FlowPlan{Lambda: terms.WaitQuantile, WindowUS: document.Micros(scaling.PaceFor(0).QueueWindow)}
	for s := range w.services {
		result.Candidates += lists.Sum(len(w.services[s].byKind), func(k int) int { return len(w.services[s].byKind[k].batches) })
		result.Deployment = append(result.Deployment, w.deployedService(s, b, p))
		section.Modules = append(section.Modules, w.flowModule(s, b, p))
	}

	if err := w.addApplications(section, rateFactor); err != nil {
		return nil, err
	}

	// If language models drain, or models have devices alone, the bound does not hold for all plans.
	result.Section = section
	switch {
	case DrainsLanguageModel(result.Deployment, section.Modules):
		w.run.Assume("a language model drains before its device runs another model: what devices carry without queueing leaves that out")
		result.Objective.Bound, result.Objective.Gap, result.Objective.BoundAmong = nil, nil, ""
		// Without a bound, the plan must not say that the search ended with a proof or a gap.
		if result.StoppedBy != milp.StoppedByInterrupt {
			result.StoppedBy = milp.StoppedByWork
		}
	case len(w.partitions) > len(w.clusterPools):
		result.Objective.BoundAmong += " and with these devices for models alone"
	}
	return result, nil
}

// warnLoads warns if devices have to load services at run time for some of the planned time.
func (w *workflowProblem) warnLoads(p *placement) {
	if totalTime := lists.Total(p.totalTime); p.servedTime < totalTime*(1-1e-6) {
		w.run.Warn("memory: %.3g %% of the time runs what devices hold at the start, at most %.3g %% can; the rest is loaded at run time", 100*p.servedTime/totalTime, 100*p.servedBound/totalTime)
	}
}

// addApplications adds the applications to a plan's section, with sample ways that their requests take. scale is the rate factor: an
// application's rate is its weight times scale. If that is less than the workload asks for, it adds a warning.
func (w *workflowProblem) addApplications(section *formats.FlowPlan, scale float64) error {
	for i := range w.apps {
		a := &w.apps[i]
		planned := formats.FlowApplication{Served: formats.Served{Model: a.application.Name, SLOUS: document.Micros(a.slo), MarginUS: document.Micros(a.margin),
			Percentile: a.application.Percentile, Weight: a.application.Weight, RPS: a.weight * scale}, Parameters: a.application.Parameters, Segments: a.application.Segments}
		section.Applications = append(section.Applications, planned)
		if planned.RPS < a.application.RPS*(1-1e-9) {
			w.run.Warn("%s: %.6g requests/s are planned, the workload asks for %.6g", a.application.Name, planned.RPS, a.application.RPS)
		}
		paths, err := w.requestPaths(a)
		if err != nil {
			return err
		}
		section.Transitions = append(section.Transitions, formats.WaysOf{Application: a.application.Name, Paths: paths})
	}
	return nil
}

// flowModule returns what a plan says of service s (a model) beside its batches: memory, load times, for a language model its instances,
// and the devices that hold it at the start. Where kinds of devices differ, it has the largest values, and with several pools also those
// of each kind.
func (w *workflowProblem) flowModule(s int, b *chosenBatches, p *placement) formats.FlowModule {
	sv := &w.services[s]
	m := formats.FlowModule{Model: sv.name, WeightBytes: sv.weights, NearUS: document.Micros(sv.nearMoveTime), FarUS: document.Micros(sv.farMoveTime), Session: sv.profile.Session}
	llm := w.languageModels[sv.name]
	if llm != nil {
		m.Generation = &formats.FlowGeneration{PromptMean: llm.PromptMean, OutputMean: llm.OutputMean, KVBytesPerToken: llm.KVBytesPerToken}
	}
	// Each partition k (devices of a pool that run the same models) counts as a kind of devices.
	for k := range sv.byKind {
		if batch := b.batch[s][k]; batch != notDeployed {
			onKind := formats.FlowKind{Device: w.pools[k].Device, LoadUS: document.Micros(sv.byKind[k].loadTime), WorkingBytes: sv.byKind[k].workingMemory(batch, sv.weights)}
			m.ColdStartUS, m.WorkingBytes = max(m.ColdStartUS, onKind.LoadUS), max(m.WorkingBytes, onKind.WorkingBytes)
			if len(w.clusterPools) > 1 {
				m.Kinds = append(m.Kinds, onKind)
			}
			if llm != nil {
				// A language model's batch is its number of sequences at once, and its working memory holds their tokens.
				w.run.WarnInstance(sv.name, llm.InstanceOn(onKind.Device))
				sequences, kvTokens := sv.byKind[k].batches[batch].batch, onKind.WorkingBytes/llm.KVBytesPerToken
				m.Generation.Instances = append(m.Generation.Instances, plannedInstance(llm.InstanceOn(onKind.Device), sequences, kvTokens))
			}
		}

		// The placement counts the devices that are used, one partition after another. The plan counts all devices of all pools in a row,
		// in which the partition's devices begin at firstDevice.
		firstDevice := w.partitions[k].firstDevice
		firstDevice += lists.Sum(w.partitions[k].pool, func(i int) int { return w.clusterPools[i].Count })
		for d, kind := range p.kindOf {
			if kind == k && slices.Contains(p.heldServices[d], s) {
				indexInPartition := d - slices.Index(p.kindOf, k)
				m.Resident = append(m.Resident, firstDevice+indexInPartition)
			}
		}
	}
	return m
}

// plannedInstance returns the profile's instance of a language model on a kind of devices, with the planned
// number of sequences at once and the KV memory that remains for them.
func plannedInstance(profiled *formats.LLMInstance, sequences int, kvTokens int64) formats.LLMInstance {
	planned := *profiled
	planned.Sequences, planned.KVTokens, planned.KVSource = sequences, kvTokens, formats.KVComputed
	planned.Loads, planned.Fit, planned.OneBatch = nil, nil, nil // the module has its load
	return planned
}

// workingMemory returns the bytes that a device needs beside the weights for batches of a service up to its useful batch k (an index of
// on.batches).
func (on *serviceOnKind) workingMemory(k int, weights int64) int64 {
	maxBytes := int64(0)
	for i := range on.costs.Batches {
		maxBytes = max(maxBytes, on.costs.Batches[i].Memory-weights)
		if on.costs.Batches[i].Batch >= on.batches[k].batch {
			break
		}
	}
	return maxBytes
}

// deployedService returns where service s (a model) may run, for the plan: on every device of the partitions (devices that run the same
// models) that have a batch for it. GPUs is there the device time that its work takes, RPS the tasks per second of that time.
func (w *workflowProblem) deployedService(s int, b *chosenBatches, p *placement) formats.Deployed {
	sv := &w.services[s]
	deployment := sv.profile.NewDeployment()
	deployment.Model = sv.name
	for k := range sv.byKind {
		if b.batch[s][k] == notDeployed {
			continue
		}
		on, size := &sv.byKind[k], &sv.byKind[k].batches[b.batch[s][k]]
		deviceTime := max(p.kindTime[s][k], TimeTolerance)
		stage := formats.Stage{Device: w.pools[k].Device, Share: 1, Replicas: b.counts[k], GPUs: deviceTime, RPS: deviceTime / size.secondsPerTask(),
			Placement: []formats.Placement{{FirstDevice: w.partitions[k].firstDevice, PerDevice: 1, Replicas: b.counts[k]}}}
		terms.AddStage(&deployment, stage, sv.profile, &on.costs, size.batch)
	}
	return deployment
}
