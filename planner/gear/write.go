package gear

import (
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/planner/kind"
)

// usedModels returns the models that some gear asks, in the order of the family.
func (out *Outcome) used(models int) []int {
	var list []int
	for m := range models {
		if slices.ContainsFunc(out.Gears, func(g Planned) bool { return slices.Contains(g.Cascade.Models, uint8(m)) }) {
			list = append(list, m)
		}
	}
	return list
}

// addDeployment adds the used models to the plan, in the order of the family: a pipeline for each kind that holds
// a model, and one for each chain. The device time of a pipeline is its mean over the ranges, half by weight and
// half even, so that a model which is only asked in ranges without weight has some, too.
func (f *resolved) deploy(o *kind.Outcome, out *Outcome) {
	p := f.problem
	batch, per := speedsOf(p)
	for _, m := range out.used(len(p.Models)) {
		at, first := f.profile[m].Deployed(), 0
		at.Model = p.Models[m].Name
		for k := range p.Kinds {
			if devices := out.Replicas(m, k); len(devices) > 0 {
				gpus := out.samples(p, m, first, len(devices)) * per[k][m]
				at.Pipelines, first = append(at.Pipelines, f.wholePipeline(m, k, batch[k][m], gpus, devices)), first+len(devices)
			}
		}
		for c := range out.Chains {
			if chain := &out.Chains[c]; chain.Chain.Model == m {
				samples := out.samples(p, m, first, chain.Replicas())
				at.Pipelines, first = append(at.Pipelines, f.chainPipeline(chain, samples)), first+chain.Replicas()
			}
		}
		o.Deployment = append(o.Deployment, at)
	}
}

// meanSampleRate returns the samples per second that n replicas of a model get, as a mean over the ranges.
func (out *Outcome) samples(p *Problem, m, first, n int) float64 {
	total := 0.0
	for r := range out.Gears {
		c := &out.Gears[r].Cascade
		weight := (p.Weights[r] + 1/float64(len(p.Edges))) / 2
		for k, member := range c.Models {
			if int(member) == m {
				total += weight * p.Edges[r] * float64(c.Reach[k]) / float64(p.Planned.N) * sum(out.Gears[r].Shares[m][first:first+n])
			}
		}
	}
	return total
}

// wholePipeline returns the pipeline of a model that runs whole on devices of a kind. gpus is the number of
// devices that its work keeps busy.
func (f *resolved) wholePipeline(m, k, batch int, gpus float64, devices []int) formats.Pipeline {
	pm := f.profile[m]
	s := formats.Stage{Blocks: [2]int{0, len(pm.Blocks)}, Device: f.pools[k].Device, Share: 1, Replicas: len(devices), GPUs: gpus, Placement: placed(devices)}
	wholeOf(pm, s.Device).WriteTimes(&s, pm, batch, 0, 1)
	s.RPS = min(float64(len(devices)), gpus) * float64(batch) / f.problem.Models[m].On[k].run(batch).Seconds()
	return formats.Pipeline{Batch: batch, RPS: s.RPS, LatencyUS: s.InferUS[batch-1], Stages: []formats.Stage{s}}
}

// replicaPlacements returns the placements of one replica per device. Consecutive devices form one placement.
func placed(devices []int) (list []formats.Placement) {
	for _, d := range devices {
		if n := len(list); n > 0 && list[n-1].First+list[n-1].Replicas == d {
			list[n-1].Replicas++
		} else {
			list = append(list, formats.Placement{First: d, PerDevice: 1, Replicas: 1})
		}
	}
	return list
}

// Write returns the gear section of the plan.
func (out *Outcome) Write(p *Problem, weights string) *formats.GearPlan {
	g := &formats.GearPlan{
		SLOUS: document.Micros(p.SLO), Percentile: "p" + strconv.FormatFloat(100*p.Percentile, 'g', 6, 64),
		Accuracy: p.Target, MaxQPS: p.Edges[len(p.Edges)-1], Weights: weights, Samples: p.Planned.N, Models: []formats.GearModel{},
	}
	if p.Overall {
		g.Over = formats.OverRequests
	}
	if p.HeldOut != nil {
		g.HeldOut = p.HeldOut.N
	}
	if h, ok := out.HeldOut(); ok {
		g.AccuracyHeldOut, g.HeldOutInterval = &h.Accuracy, &[2]float64{h.Low, h.High}
	}

	// Models with the answers to the planning samples.
	for _, m := range out.used(len(p.Models)) {
		levels, correct := make([]byte, p.Planned.N), make([]byte, p.Planned.N)
		for i := range levels {
			levels[i], correct[i] = formats.GearLevels[p.Planned.Levels[m][i]], '0'
			if p.Planned.Correct[m][i] {
				correct[i] = '1'
			}
		}
		g.Models = append(g.Models, formats.GearModel{Model: p.Models[m].Name, Thresholds: p.Thresholds[m], Levels: string(levels), Correct: string(correct)})
	}

	// Gears.
	from := 0.0
	for r := range out.Gears {
		g.Gears = append(g.Gears, out.Gears[r].write(p, from, p.Edges[r], p.Weights[r]))
		if p.ByRate != nil {
			g.Gears[r].RateShare = p.ByRate[r]
		}
		from = p.Edges[r]
	}
	return g
}

// writeGear returns the gear of a range between two rates as it is in the plan.
func (t *Planned) write(p *Problem, from, to, weight float64) formats.Gear {
	c, load := &t.Cascade, t.Load
	if !p.Overall || p.Measured == nil {
		load = min(1, load) // more is rounding
	}
	g := formats.Gear{FromQPS: from, ToQPS: to, Weight: weight, Accuracy: t.Accuracy, Bound: t.Bound,
		Utilisation: load, LatencyUS: document.Micros(t.Trial.Latency), LatencyHeldOutUS: document.Micros(t.Trial.HeldOut), Late: t.Late}

	// Accuracy on the held-out samples.
	if p.HeldOut != nil && p.HeldOut.N > 0 {
		_, right := p.HeldOut.Replay(c.Models, c.Levels)
		share := float64(right) / float64(p.HeldOut.N)
		lo, hi := report.Wilson(int64(right), int64(p.HeldOut.N), 0.95)
		g.AccuracyHeldOut, g.HeldOutInterval = &share, &[2]float64{lo, hi}
	}

	// Stages.
	for k, m := range c.Models {
		s := formats.GearStage{Model: p.Models[m].Name, Fraction: float64(c.Reach[k]) / float64(p.Planned.N), MinQueue: 1, Split: t.Shares[m]}
		if k == 0 {
			s.MinQueue = t.MinQueue
		}
		if k < len(c.Levels) {
			s.Level = int(c.Levels[k])
			s.Threshold = p.Thresholds[m][s.Level-1]
		}
		g.Stages = append(g.Stages, s)
	}
	return g
}
