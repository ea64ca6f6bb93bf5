package main

import (
	"fmt"
	"math"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
)

// crossings are what plans are held against one cascade for all rates on: numbers of
// devices, and how long a stretch of a trace lasts.
var crossings = map[string]struct {
	devices []int
	seconds int
}{
	"bert5":  {[]int{2, 4}, 240},
	"llama4": {[]int{2, 3, 4, 5, 6, 7, 8, 9}, 1200},
	"imdb3":  {[]int{2, 4, 6}, 240},
}

// switching holds plans against the best single cascade of the very trace.
func (b *bench) switching(f *published.Family, t *table.Table) error {
	c := crossings[f.Name]
	list := []*published.Family{f}
	for _, s := range published.Stretches {
		g, err := f.Through(b.data, s, c.seconds)
		if err != nil {
			return err
		}
		list = append(list, g)
	}
	for k, g := range list {
		trace, least, cells := "its own", math.Inf(1), 0
		if k > 0 {
			trace = published.Stretches[k-1].Name
		}
		ratio := g.Rates.Peak() * g.Rates.Duration().Seconds() / g.Rates.Total()
		for _, d := range c.devices {
			above, err := b.crossing(place{g, d, f.SLO}, t, f.Name, trace, fmt.Sprintf("%.2f", ratio))
			if err != nil {
				return err
			}
			if !math.IsNaN(above) {
				least, cells = min(least, above), cells+1
			}
		}
		if b.counting == nil && cells > 0 {
			b.figure(figures.Figure{Claim: fmt.Sprintf("accuracy of plans of %s above the best single cascade, least, through %s", f.Name, trace), Source: "no plan is below no switching",
				Asked: "at least 0", Measured: 100 * least, Unit: "points", Holds: figures.If(least > -5e-5), Note: fmt.Sprintf("%d numbers of devices, peak over mean %.2f", cells, ratio)}, "switching", f)
		}
	}
	return nil
}

// crossing is a row: how far the planner's accuracy is above that of one cascade, NaN
// where there is none to compare.
func (b *bench) crossing(p place, t *table.Table, cells ...any) (float64, error) {
	row, shown := append(cells, p.devices), []float64{math.NaN(), math.NaN()}
	for i, make := range []func(place) (*plan, error){b.ours, b.overall} {
		v, err := make(p)
		if err != nil {
			return 0, err
		}
		if !v.OK {
			row = append(row, "no plan", "")
			continue
		}
		r, err := b.show(v.system, even, baseline.Sliding{})
		if err != nil {
			return 0, err
		}
		shown[i] = r.Accuracy
		row = append(row, digits(r.Accuracy), whole(ms(r.P95)))
	}
	one, err := b.tuned(p, []stream{even}, baseline.NoSwitching)
	if err != nil {
		return 0, err
	}
	if one == nil {
		t.Add(append(row, "none in time", "", "", "")...)
		return math.NaN(), nil
	}
	above := func(accuracy float64) string { return fmt.Sprintf("%.2f", 100*(accuracy-one.Run.Accuracy)) }
	t.Add(append(row, digits(one.Run.Accuracy), whole(ms(one.Run.P95)), above(shown[0]), above(shown[1]))...)
	return shown[0] - one.Run.Accuracy, nil
}
