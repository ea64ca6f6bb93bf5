package main

import (
	"fmt"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
)

// outOfSample are the devices that each method needs for an accuracy on the samples that
// plans are made on, and on others. Baselines choose by the samples that they are judged
// on. One column has what Cascadia-like plans need that were chosen, as ours, on the samples
// planned on. Synthetic samples are two draws of the generator, real ones are split 60 to 40.
func (b *bench) outOfSample(f *published.Family, t *table.Table) error {
	drawn, err := f.Draw(b.data, 0)
	if err != nil {
		return err
	}
	drawn.Name = f.Name + ", drawn"
	for _, on := range []struct {
		samples string
		judged  *published.Family
		through func(func(place) (*plan, error)) func(place) (*plan, error)
	}{
		{"planned on", drawn, func(plan func(place) (*plan, error)) func(place) (*plan, error) { return plan }},
		{"held out", drawn.HeldOut(), b.onOthers},
	} {
		if err := b.equalAccuracy(f, drawn, on.judged, on.through, t, on.samples); err != nil {
			return err
		}
	}
	return nil
}

// equalAccuracy are rows for the accuracies of a study, of plans on some samples and
// baselines on those that count.
func (b *bench) equalAccuracy(f, drawn, judged *published.Family, through func(func(place) (*plan, error)) func(place) (*plan, error), t *table.Table, samples string) error {
	s, on := studies[f.Name], []stream{even}
	need, err := b.needed(s, []reached{
		b.reachedPlan(drawn, f.SLO, on, through(b.ours)),
		b.reachedPlan(drawn, f.SLO, on, through(b.overall)),
		b.reachedTuned(judged, f.SLO, on, alone(baseline.NoSwitching)),
		b.reachedTuned(judged, f.SLO, on, cascadia(false)),
		b.reachedTuned(judged, f.SLO, on, cascadia(true)),
		b.reachedTuned(judged, f.SLO, on, alone(baseline.BestModelSwitching)),
		b.reachedPlan(drawn, f.SLO, on, through(func(p place) (*plan, error) { return b.chosen(p, on, cascadia(false)) })),
	})
	if err != nil {
		return err
	}
	single, err := b.leastSingle(judged, f.SLO, on, s.targets, s.most)
	if err != nil {
		return err
	}
	need = append(need, single)
	var cells []cell
	for k, target := range s.targets {
		e, err := b.ensemble(judged, target, 1, baseline.Sliding{})
		if err != nil {
			return err
		}
		cocktail := "none in time"
		if len(e.Models) > 0 {
			cocktail = fmt.Sprintf("%.2f", e.Mean)
		}
		row := []any{f.Name, target, samples}
		for i := range need {
			row = append(row, count(need[i][k], s.most))
		}
		msPlus := need[5][k]
		t.Add(append(row, cocktail, times(need[0][k], msPlus, single[k]), times(need[1][k], msPlus, single[k]))...)
		if fewer := fewerThan(need[0][k], msPlus, single[k]); b.counting == nil && fewer > 0 {
			b.figure(fewerDevices(fmt.Sprintf("devices of %s at accuracy %g on samples %s", f.Name, target, samples), fewer,
				fmt.Sprintf("planner %s, MS+ %s, DynBa %s, Cocktail+ %s", count(need[0][k], s.most), count(msPlus, s.most), count(single[k], s.most), cocktail)), "out-of-sample", f)
		}
		cells = append(cells, cell{fmt.Sprint(target), [2]int{need[0][k], need[1][k]},
			append(rivals(need[3][k], need[4][k], msPlus, single[k]), rival{"no switching", float64(need[2][k])}, rival{"Cocktail+", e.Mean})})
	}
	b.neverMore(fmt.Sprintf("%s on samples %s", f.Name, samples), "out-of-sample", f, cells)
	return nil
}

// onOthers makes plans that run on the samples held out instead of those planned on.
func (b *runs) onOthers(make func(place) (*plan, error)) func(place) (*plan, error) {
	return func(p place) (*plan, error) {
		v, err := make(p)
		if err != nil || !v.OK {
			return v, err
		}
		out := *v
		out.system = &system{p, v.name + ", samples held out", func() (*policy.Tables, error) {
			t, err := v.tables()
			if err != nil {
				return nil, err
			}
			prob, err := b.problem(p)
			if err != nil {
				return nil, err
			}
			changed, own := *t, *policygear.TablesOf(t)
			own.Records = policygear.SampleRecords{Samples: prob.HeldOutSamples.N, Levels: prob.HeldOutSamples.Levels, Correct: prob.HeldOutSamples.Correct}
			changed.KindTables = &own
			return &changed, nil
		}}
		return &out, nil
	}
}

// chosen returns the plan that a baseline chooses by the samples planned on.
func (b *runs) chosen(p place, on []stream, tune tuner) (*plan, error) {
	v, err := b.tuned(p, on, tune)
	if err != nil || v == nil {
		return &plan{}, err
	}
	return &plan{OK: true, system: &system{p, v.Name + " chosen", func() (*policy.Tables, error) { return v.Tables, nil }}}, nil
}
