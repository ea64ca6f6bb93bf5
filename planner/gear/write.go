package gear

import (
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
)

// used lists the models that some gear asks, in order of the family.
func (out *Outcome) used(models int) []int {
	var list []int
	for m := range models {
		if slices.ContainsFunc(out.Gears, func(g Planned) bool { return slices.Contains(g.Cascade.Models, uint8(m)) }) {
			list = append(list, m)
		}
	}
	return list
}

// Deployment is where a model of the outcome runs.
type Deployment struct {
	Model     int // of the problem
	Kind      int // of its devices, where there are several
	Batch     int
	Devices   float64 // time share, mean over the ranges
	Placement []formats.Placement
	Replicas  int
	Chain     *Chain       // that the model runs as; nil: whole
	Stages    []Deployment // of it, with Kind, Devices, Placement and Replicas of each
}

// Deployments are the models in use, in order of the family. A model's time
// share is its mean load over the ranges, half by weight and half even, so that
// a model that is only asked in ranges without weight has one too.
func (out *Outcome) Deployments(p *Problem) []Deployment {
	batch, per := speedsOf(p)
	var list []Deployment
	for _, m := range out.used(len(p.Models)) {
		first := 0
		for kind := range batch {
			devices := out.Replicas(m, kind)
			if len(devices) == 0 {
				continue
			}
			samples := out.samples(p, m, first, len(devices))
			first += len(devices)
			d := Deployment{Model: m, Kind: kind, Batch: batch[kind][m], Devices: samples * per[kind][m]}
			d.place(devices)
			list = append(list, d)
		}
		for c := range out.Chains {
			if chain := &out.Chains[c]; chain.Chain.Model == m {
				list = append(list, deployChain(chain, out.samples(p, m, first, chain.Replicas())))
				first += chain.Replicas()
			}
		}
	}
	return list
}

// samples is how many samples per second some replicas of a model get, mean over the
// ranges.
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

// deployChain is the deployment of a chain that gets some samples per second.
func deployChain(placed *PlacedChain, samples float64) Deployment {
	c := placed.Chain
	d := Deployment{Model: c.Model, Kind: c.Stages[0].Kind, Batch: c.Batch, Chain: c, Replicas: placed.Replicas()}
	for s := range c.Stages {
		st := Deployment{Model: c.Model, Kind: c.Stages[s].Kind, Batch: c.Batch, Devices: samples * c.Stages[s].per}
		st.place(placed.Devices[s])
		d.Stages = append(d.Stages, st)
	}
	return d
}

// place puts the replicas on devices.
func (d *Deployment) place(devices []int) {
	for _, dev := range devices {
		if n := len(d.Placement); n > 0 && d.Placement[n-1].First+d.Placement[n-1].Replicas == dev {
			d.Placement[n-1].Replicas++
		} else {
			d.Placement = append(d.Placement, formats.Placement{First: dev, PerDevice: 1, Replicas: 1})
		}
		d.Replicas++
	}
}

// Write makes the gear section of a plan.
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

func (t *Planned) write(p *Problem, from, to, weight float64) formats.Gear {
	c, load := &t.Cascade, t.Load
	if !p.Overall || p.Measured == nil {
		load = min(1, load) // more is rounding
	}
	g := formats.Gear{FromQPS: from, ToQPS: to, Weight: weight, Accuracy: t.Accuracy, Bound: t.Bound,
		Utilisation: load, LatencyUS: document.Micros(t.Trial.Latency), LatencyHeldOutUS: document.Micros(t.Trial.HeldOut), Late: t.Late}
	if p.HeldOut != nil && p.HeldOut.N > 0 {
		_, right := p.HeldOut.Replay(c.Models, c.Levels)
		share := float64(right) / float64(p.HeldOut.N)
		lo, hi := report.Wilson(int64(right), int64(p.HeldOut.N), 0.95)
		g.AccuracyHeldOut, g.HeldOutInterval = &share, &[2]float64{lo, hi}
	}
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
