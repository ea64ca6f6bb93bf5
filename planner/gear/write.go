package gear

import (
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/report"
)

// used lists the models that some gear asks, in order of the family.
func (out *Outcome) used(models int) []int {
	var list []int
	for m := range models {
		for g := range out.Gears {
			if strings.IndexByte(string(out.Gears[g].Cascade.Models), byte(m)) >= 0 {
				list = append(list, m)
				break
			}
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
}

// Deployments are the models in use, in order of the family. A model's time
// share is its mean load over the ranges, half by weight and half even, so that
// a model that is only asked in ranges without weight has one too.
func (out *Outcome) Deployments(p *Problem) []Deployment {
	if p.Mixed() {
		return out.mixedDeployments(p)
	}
	var list []Deployment
	for _, m := range out.used(len(p.Models)) {
		d := Deployment{Model: m}
		var per float64
		d.Batch, per = p.operating(m)
		for r := range out.Gears {
			c := &out.Gears[r].Cascade
			share := (p.Weights[r] + 1/float64(len(p.Edges))) / 2
			for k, member := range c.Models {
				if int(member) == m {
					d.Devices += share * per * p.Edges[r] * float64(c.Reach[k]) / float64(p.Planned.N)
				}
			}
		}
		d.place(out.Placement.DevicesOf(m))
		list = append(list, d)
	}
	return list
}

// mixedDeployments are those of a model on every kind of devices that holds it,
// kind after kind. Its time share is what its replicas there get.
func (out *Outcome) mixedDeployments(p *Problem) []Deployment {
	x := &mixed{p: p}
	x.measure()
	var list []Deployment
	for _, m := range out.used(len(p.Models)) {
		first := 0
		for kind := range p.Kinds {
			devices := out.Replicas(m, kind)
			if len(devices) == 0 {
				continue
			}
			d := Deployment{Model: m, Kind: kind, Batch: x.batch[kind][m]}
			for r := range out.Gears {
				c := &out.Gears[r].Cascade
				weight := (p.Weights[r] + 1/float64(len(p.Edges))) / 2
				for k, member := range c.Models {
					if int(member) == m {
						work := p.Edges[r] * float64(c.Reach[k]) / float64(p.Planned.N) * x.per[kind][m]
						d.Devices += weight * work * sum(out.Gears[r].Shares[m][first:first+len(devices)])
					}
				}
			}
			first += len(devices)
			d.place(devices)
			list = append(list, d)
		}
	}
	return list
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
		SLOUS: formats.Micros(p.SLO), Percentile: "p" + strconv.FormatFloat(100*p.Percentile, 'g', 6, 64),
		Accuracy: p.Target, MaxQPS: p.Edges[len(p.Edges)-1], Weights: weights, Samples: p.Planned.N, Models: []formats.GearModel{},
	}
	if p.Overall {
		g.Over = formats.OverRequests
	}
	if p.HeldOut != nil {
		g.HeldOut = p.HeldOut.N
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
	c := &t.Cascade
	g := formats.Gear{FromQPS: from, ToQPS: to, Weight: weight, Accuracy: t.Accuracy, Bound: t.Bound,
		Utilisation: min(1, t.Load), LatencyUS: formats.Micros(t.Trial.Latency), Late: t.Late}
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
