package gear

import (
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// usedModels returns the indexes of the models that some gear asks, in the order of the family.
func usedModels(plan *trials.Plan, models int) []int {
	var list []int
	for m := range models {
		if slices.ContainsFunc(plan.Gears, func(g trials.PlannedGear) bool { return slices.Contains(g.Cascade.Models, uint8(m)) }) {
			list = append(list, m)
		}
	}
	return list
}

// addDeployment adds the used models to the outcome's deployment, in the order of the family: a pipeline for each kind
// of devices that holds the whole model, and one for each chain (the model in stages). The device time of a pipeline is
// its mean over the ranges of rates, half by weight and half even, so that a model which is only asked in ranges
// without weight has some, too.
func (f *resolvedWorkload) addDeployment(o *kind.Outcome, plan *trials.Plan) {
	p := plan.Problem
	maxBatch, secondsPerSample := cascades.BatchesAndSpeeds(p)
	for _, m := range usedModels(plan, len(p.Models)) {
		// firstReplica counts in the order of a gear's shares: whole models kind by kind, then chains.
		deployed, firstReplica := f.modelProfiles[m].NewDeployment(), 0
		deployed.Model = p.Models[m].Name
		for k := range p.Kinds {
			if devices := plan.Replicas(m, k); len(devices) > 0 {
				gpus := meanSampleRate(plan, p, m, firstReplica, len(devices)) * secondsPerSample[k][m]
				deployed.Pipelines, firstReplica = append(deployed.Pipelines, f.wholePipeline(p, m, k, maxBatch[k][m], gpus, devices)), firstReplica+len(devices)
			}
		}
		for c := range plan.Chains {
			if chain := &plan.Chains[c]; chain.Chain.Model == m {
				samples := meanSampleRate(plan, p, m, firstReplica, chain.Replicas())
				deployed.Pipelines, firstReplica = append(deployed.Pipelines, f.chainPipeline(p, chain, samples)), firstReplica+chain.Replicas()
			}
		}
		o.Deployment = append(o.Deployment, deployed)
	}
}

// meanSampleRate returns the samples per second that n replicas of a model, from firstReplica on in the order of the
// gears' shares, get at the upper edges of the ranges of rates: a mean over the ranges, half by weight and half even.
func meanSampleRate(plan *trials.Plan, p *cascades.Problem, model, firstReplica, n int) float64 {
	total := 0.0
	for r := range plan.Gears {
		c := &plan.Gears[r].Cascade
		weight := (p.RangeWeights[r] + 1/float64(len(p.RangeEdges))) / 2
		for k, member := range c.Models {
			if int(member) == model {
				total += weight * p.RangeEdges[r] * float64(c.ReachCounts[k]) / float64(p.PlanningSamples.N) * lists.Total(plan.Gears[r].Shares[model][firstReplica:firstReplica+n])
			}
		}
	}
	return total
}

// wholePipeline returns the pipeline, for the plan document, of a model that runs whole on some devices of a kind, both
// by index. batch is its largest batch, and gpus the number of devices that its work keeps busy on average. devices are
// numbers within the kind.
func (f *resolvedWorkload) wholePipeline(p *cascades.Problem, model, kindIndex, batch int, gpus float64, devices []int) formats.Pipeline {
	modelProfile := f.modelProfiles[model]
	s := formats.Stage{Blocks: [2]int{0, len(modelProfile.Blocks)}, Device: f.pools[kindIndex].Device, Share: 1, Replicas: len(devices), GPUs: gpus, Placement: replicaPlacements(devices)}
	wholeModelCosts(modelProfile, s.Device).WriteTimes(&s, modelProfile, batch, 0, 1)
	s.RPS = min(float64(len(devices)), gpus) * float64(batch) / p.Models[model].Variants[kindIndex].MeanTime(batch).Seconds()
	return formats.Pipeline{Batch: batch, RPS: s.RPS, LatencyUS: s.InferUS[batch-1], Stages: []formats.Stage{s}}
}

// replicaPlacements returns the placements, as a plan document has them, of one replica on each of some devices, by
// number. Devices of consecutive numbers form one placement.
func replicaPlacements(devices []int) (list []formats.Placement) {
	for _, d := range devices {
		if n := len(list); n > 0 && list[n-1].FirstDevice+list[n-1].Replicas == d {
			list[n-1].Replicas++
		} else {
			list = append(list, formats.Placement{FirstDevice: d, PerDevice: 1, Replicas: 1})
		}
	}
	return list
}

// writeSection returns the gear section of the plan document: the SLO, the used models with their answers to the
// planning samples, and the gear (cascade with its split over devices) of each range of rates. weights names where the
// ranges' weights come from. The caller fills in scores, times and calibration.
func writeSection(plan *trials.Plan, weights string) *formats.GearPlan {
	p := plan.Problem
	g := &formats.GearPlan{
		SLOUS: document.Micros(p.SLO), Percentile: "p" + strconv.FormatFloat(100*p.Percentile, 'g', 6, 64),
		Accuracy: p.TargetAccuracy, MaxQPS: p.RangeEdges[len(p.RangeEdges)-1], Weights: weights, Samples: p.PlanningSamples.N, Models: []formats.GearModel{},
	}
	if p.OverRequests {
		g.SLOScope = formats.ScopeRequests
	}
	if p.HeldOutSamples != nil {
		g.HeldOut = p.HeldOutSamples.N
	}
	if h, ok := plan.HeldOutAccuracy(); ok {
		g.AccuracyHeldOut, g.HeldOutInterval = &h.Accuracy, &[2]float64{h.Low, h.High}
	}

	// Models with the answers to the planning samples, as text: a character for the level of certainty of each, and 1 if it is
	// correct.
	for _, m := range usedModels(plan, len(p.Models)) {
		levels, correct := make([]byte, p.PlanningSamples.N), make([]byte, p.PlanningSamples.N)
		for i := range levels {
			levels[i], correct[i] = formats.GearLevels[p.PlanningSamples.Levels[m][i]], '0'
			if p.PlanningSamples.Correct[m][i] {
				correct[i] = '1'
			}
		}
		g.Models = append(g.Models, formats.GearModel{Model: p.Models[m].Name, Thresholds: p.Thresholds[m], Levels: string(levels), Correct: string(correct)})
	}

	// Gears.
	previousEdge := 0.0
	for r := range plan.Gears {
		g.Gears = append(g.Gears, writeGear(&plan.Gears[r], p, previousEdge, p.RangeEdges[r], p.RangeWeights[r]))
		if p.RateShares != nil {
			g.Gears[r].RateShare = p.RateShares[r]
		}
		previousEdge = p.RangeEdges[r]
	}
	return g
}

// writeGear returns the planned gear of a range, the cascade with its split, as the plan document has it. fromRate and
// toRate are the edges of the range in requests per second, and weight is its share of the requests. The accuracy on
// held-out samples comes with a 95 % interval.
func writeGear(planned *trials.PlannedGear, p *cascades.Problem, fromRate, toRate, weight float64) formats.Gear {
	c, load := &planned.Cascade, planned.BusiestLoad
	// A gear must have time for the range's upper edge, so more than 1 is rounding. Only with an SLO over all requests at measured
	// rates, which may stay below that edge, a range may take a gear of a higher load.
	if mayExceedTime := p.OverRequests && p.MeasuredRates != nil; !mayExceedTime {
		load = min(1, load)
	}
	g := formats.Gear{FromQPS: fromRate, ToQPS: toRate, Weight: weight, Accuracy: planned.Accuracy, Bound: planned.Bound,
		Utilisation: load, LatencyUS: document.Micros(planned.Trial.Latency), LatencyHeldOutUS: document.Micros(planned.Trial.HeldOutLatency), LateShare: planned.LateShare}

	// Accuracy on the held-out samples.
	if p.HeldOutSamples != nil && p.HeldOutSamples.N > 0 {
		_, correctCount := p.HeldOutSamples.Replay(c.Models, c.Levels)
		share := float64(correctCount) / float64(p.HeldOutSamples.N)
		lo, hi := report.Wilson(int64(correctCount), int64(p.HeldOutSamples.N), 0.95)
		g.AccuracyHeldOut, g.HeldOutInterval = &share, &[2]float64{lo, hi}
	}

	// Stages: the cascade's models. The first waits for MinQueue requests. A level is 1 above the index of its threshold.
	for k, m := range c.Models {
		s := formats.GearStage{Model: p.Models[m].Name, Fraction: float64(c.ReachCounts[k]) / float64(p.PlanningSamples.N), MinQueue: 1, Split: planned.Shares[m]}
		if k == 0 {
			s.MinQueue = planned.MinQueue
		}
		if k < len(c.Levels) {
			s.Level = int(c.Levels[k])
			s.Threshold = p.Thresholds[m][s.Level-1]
		}
		g.Stages = append(g.Stages, s)
	}
	return g
}
