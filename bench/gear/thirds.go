package main

import (
	"context"
	"errors"
	"fmt"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/formats"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/solver/highs"
)

// Of plans that are judged on samples which neither planning nor its trials saw: the most
// samples of a part, the part of the SLO from which on a gear is near it, and of how many draws
// plans are also made without samples held out.
const (
	mostOfThird  = 3000
	nearSLO      = .8
	drawsWithout = 2
)

// judgedPlan is a plan on a third part of the samples.
type judgedPlan struct {
	OK       bool
	Accuracy float64
	Near     bool      // some gear has its tail near the SLO, on what it was tried with
	Missed   bool      // some gear that is near it has it past the SLO on the third part
	Tails    []float64 // on the third part over the SLO, of gears near it
}

// judgedOn makes a plan of two parts of a draw, of which the second is held out or left out, and
// runs its gears that are near the SLO once with requests of the third part, ten times as long as
// the shortest trial.
func judgedOn(ctx context.Context, f *published.Family, dir string, draw uint64, devices int, heldOut bool) (*judgedPlan, error) {
	two, third, err := f.Thirds(dir, draw, mostOfThird)
	if err != nil {
		return nil, err
	}
	p, err := baseline.Problem(two, devices, ranges, f.SLO)
	if err != nil {
		return nil, err
	}
	samples := regrade(third, f.ModelNames(), p.Thresholds)
	if !heldOut {
		p.HeldOutSamples = nil
	}
	out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: planSeed})
	if _, none := errors.AsType[*cascades.InfeasibleError](err); none {
		return &judgedPlan{}, nil
	}
	if err != nil {
		return nil, err
	}
	v := &judgedPlan{OK: true, Accuracy: out.Accuracy}
	for r := range out.Gears {
		if t := &out.Gears[r].Trial; float64(max(t.Latency, t.HeldOutLatency)) < nearSLO*float64(f.SLO) {
			continue
		}
		trial, err := out.RetryGear(ctx, samples, r, uint64(1_000_000*devices+1000*r))
		if err != nil {
			return nil, err
		}
		tail := trial.Latency
		v.Near, v.Missed = true, v.Missed || tail > f.SLO
		v.Tails = append(v.Tails, tail.Seconds()/f.SLO.Seconds())
	}
	return v, nil
}

// missed counts plans near their SLO.
type missed struct{ plans, near, missed int }

func (m *missed) add(v *judgedPlan) {
	if v.OK {
		m.plans++
	}
	if v.Near {
		m.near++
	}
	if v.Missed {
		m.missed++
	}
}

// thirds holds plans near their SLO against samples that nobody planned on or tried. Of the first
// draws there are also plans without samples held out.
func (b *bench) thirds(f *published.Family, t *table.Table) error {
	var with, without missed
	lost, both := 0.0, 0
	for draw := range b.draws {
		for _, d := range devicesOf(f) {
			plan := func(heldOut bool) (*judgedPlan, error) {
				return memo(&b.runs, fmt.Sprintf("%s/thirds/%d/%d/%v/%v", f.Name, d, draw, f.SLO, heldOut), 3*perPlan, func() *judgedPlan { return &judgedPlan{} }, func(ctx context.Context) (*judgedPlan, error) {
					return judgedOn(ctx, f, b.data, uint64(draw), d, heldOut)
				}, func(v *judgedPlan) string { return fmt.Sprintf("missed %v, %.2f", v.Missed, v.Tails) })
			}
			one, err := plan(true)
			if err != nil {
				return err
			}
			with.add(one)
			if draw >= drawsWithout {
				continue
			}
			other, err := plan(false)
			if err != nil {
				return err
			}
			without.add(other)
			if one.OK && other.OK {
				lost, both = lost+other.Accuracy-one.Accuracy, both+1
			}
		}
	}
	if b.counting != nil {
		return nil
	}
	b.adding.Lock()
	b.judged.with.join(&with)
	b.judged.without.join(&without)
	b.adding.Unlock()
	t.Add(f.Name, with.plans, fmt.Sprintf("%d of %d", with.missed, with.near), fmt.Sprintf("%d of %d", without.missed, without.near), fmt.Sprintf("%.3f", 100*lost/float64(max(1, both))))
	return nil
}

func (m *missed) join(o *missed) {
	m.plans, m.near, m.missed = m.plans+o.plans, m.near+o.near, m.missed+o.missed
}

// judgedPlans are the plans of all families, tried with samples held out and without.
type judgedPlans struct{ with, without missed }

// figure is how many plans near their SLO miss it on the third part.
func (j *judgedPlans) figure(draws int) figures.Figure {
	return figures.Figure{Claim: "plans near their SLO that miss it on samples of a third part", Source: "trials on samples held out (docs/methods.md)", Asked: "at most 5",
		Measured: 100 * float64(j.with.missed) / float64(j.with.near), Unit: "%", Holds: figures.If(20*j.with.missed <= j.with.near),
		Note: fmt.Sprintf("%d of %d plans, on %d draws of samples; without samples held out %d of %d", j.with.missed, j.with.near, draws, j.without.missed, j.without.near)}
}

// regrade turns records of a family's models into levels by thresholds of other samples.
func regrade(r *formats.Records, family []string, thresholds [][]float64) *cascades.Samples {
	s := &cascades.Samples{N: r.Samples}
	for k, name := range family {
		m := r.FindModel(name)
		levels, correct := make([]uint8, r.Samples), make([]bool, r.Samples)
		for i, c := range m.Certainty[:r.Samples] {
			for l, t := range thresholds[k] {
				if c >= t {
					levels[i] = uint8(l + 1)
				}
			}
			correct[i] = m.Correct[i] == '1'
		}
		s.Levels, s.Correct = append(s.Levels, levels), append(s.Correct, correct)
	}
	return s
}
