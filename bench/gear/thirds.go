package main

import (
	"context"
	"errors"
	"fmt"

	"inferplan/bench/instrument"
)

// Of plans that are judged on samples which neither planning nor its trials saw: the most samples of a part, the part of the SLO from
// which on a gear is near it, and of how many draws plans are also made without samples held out.
const (
	mostOfThird  = 3000
	nearSLO      = .8
	drawsWithout = 2
)

// judgedPlan is a plan on a third part of the samples.
type judgedPlan struct {
	Accuracy float64
	Near     bool // some gear has its tail near the SLO, on what it was tried with
	Missed   bool // some gear that is near it has it past the SLO on the third part
}

// judgeOnThird makes a plan of two parts of a draw, of which the second is held out or left out. It runs the gears that are near the SLO
// once with requests of the third part, ten times as long as the shortest trial. It returns nil if there is no plan.
func judgeOnThird(ctx context.Context, dir string, draw uint64, p place, heldOut bool) (*judgedPlan, error) {
	tried, judged, err := p.f.Thirds(dir, draw, mostOfThird)
	if err != nil {
		return nil, err
	}
	q, err := place{tried, p.devices, p.slo}.problem()
	if err != nil {
		return nil, err
	}
	judge, err := place{judged, p.devices, p.slo}.problem()
	if err != nil {
		return nil, err
	}
	if !heldOut {
		q.HeldOutSamples = nil
	}
	found, err := solve(ctx, q)
	if err != nil || found == nil {
		return nil, err
	}
	v := &judgedPlan{Accuracy: found.Accuracy}
	for gear := range found.Gears {
		if passed := &found.Gears[gear].Trial; float64(max(passed.Latency, passed.HeldOutLatency)) < nearSLO*float64(p.slo) {
			continue
		}
		trial, err := found.RetryGear(ctx, judge.HeldOutSamples, gear, uint64(1_000_000*p.devices+1000*gear))
		if err != nil {
			return nil, err
		}
		v.Near, v.Missed = true, v.Missed || trial.Latency > p.slo
	}
	return v, nil
}

// missed counts plans near their SLO, and those that miss it.
type missed struct{ near, missed int }

// add counts plans; nil stands for no plan.
func (m *missed) add(plans []*judgedPlan) {
	for _, v := range plans {
		if v != nil && v.Near {
			m.near++
		}
		if v != nil && v.Missed {
			m.missed++
		}
	}
}

// thirds holds plans near their SLO against samples that nobody planned on or tried. Of the first draws there are also plans without
// samples held out.
func (b *bench) thirds(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"samples", "plans near the SLO", "past it"}
	var with, without missed
	var less []float64 // accuracy for samples held out
	for _, f := range b.families {
		judge := func(heldOut bool, draws int) ([]*judgedPlan, error) {
			return onProven(r, f, fmt.Sprintf("thirds/%v", heldOut), draws, func(draw uint64, p place) (*judgedPlan, error) { return judgeOnThird(r.Ctx, r.Data, draw, p, heldOut) })
		}
		plans, err := judge(true, b.draws)
		if err != nil {
			return err
		}
		others, err := judge(false, min(b.draws, drawsWithout))
		if err != nil {
			return err
		}
		with.add(plans)
		without.add(others)
		for i, v := range others {
			if v != nil && plans[i] != nil {
				less = append(less, v.Accuracy-plans[i].Accuracy)
			}
		}
	}
	if with.near == 0 {
		return errors.New("no plan is near its SLO")
	}
	t.Add("with samples held out", with.near, with.missed)
	t.Add("without", without.near, without.missed)
	mean, _ := instrument.Mean(less)
	t.Note("Samples held out cost %.3f points of accuracy in the mean of %d plans.", 100*mean, len(less))
	const claim = "plans near their SLO that miss it on samples of a third part"
	r.AtMost(claim, "trials on samples held out (docs/methods/gear.md)", 5, "%", 100*float64(with.missed)/float64(with.near)).Note = fmt.Sprintf("%d of %d plans, on %d draws of samples; without samples held out %d of %d", with.missed, with.near, b.draws, without.missed, without.near)
	return r.WriteCSV("thirds", t)
}
