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

// together is how many requests the streams come to at most that plans and one cascade
// are compared on: many requests need few streams.
const together = 2e6

// randomly are the streams on which requests come at random instants, for a trace.
func (b *bench) randomly(f *published.Family) []stream {
	n := int(together / f.Rates.Total())
	return b.poisson()[:max(1, min(n, b.seeds))]
}

// switching holds plans against the best single cascade of the very trace, and of the
// very instants at which its requests come.
func (b *bench) switching(f *published.Family, t *table.Table) error {
	list := []*published.Family{f}
	for _, s := range published.Stretches {
		g, err := f.Through(b.data, s, crossings[f.Name].seconds)
		if err != nil {
			return err
		}
		list = append(list, g)
	}
	for k, g := range list {
		trace := "its own"
		if k > 0 {
			trace = published.Stretches[k-1].Name
		}
		if err := b.through(f, g, trace, "evenly", []stream{even}, t); err != nil {
			return err
		}
		if err := b.through(f, g, trace, "at random instants", b.randomly(g), t); err != nil {
			return err
		}
	}
	return nil
}

// through are the rows of a trace.
func (b *bench) through(f, g *published.Family, trace, come string, on []stream, t *table.Table) error {
	least, cells := math.Inf(1), 0
	ratio := g.Rates.Peak() * g.Rates.Duration().Seconds() / g.Rates.Total()
	for _, d := range crossings[f.Name].devices {
		above, err := b.crossing(place{g, d, f.SLO}, on, t, f.Name, trace, fmt.Sprintf("%.2f", ratio), come)
		if err != nil {
			return err
		}
		if !math.IsNaN(above) {
			least, cells = min(least, above), cells+1
		}
	}
	if b.counting == nil && cells > 0 {
		claim := fmt.Sprintf("accuracy of plans of %s above the best single cascade, least, through %s", f.Name, trace)
		if on[0] != even {
			claim += ", requests " + come
		}
		b.figure(figures.Figure{Claim: claim, Source: "no plan is below no switching",
			Asked: "at least 0", Measured: 100 * least, Unit: "points", Holds: figures.If(least > -5e-5), Note: fmt.Sprintf("%d numbers of devices, peak over mean %.2f", cells, ratio)}, "switching", f)
	}
	return nil
}

// crossing is a row: how far the planner's accuracy is above that of one cascade, NaN
// where there is none to compare.
func (b *bench) crossing(p place, on []stream, t *table.Table, cells ...any) (float64, error) {
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
		list, err := b.all(v.system, on)
		if err != nil {
			return 0, err
		}
		r := summarise(list)
		shown[i] = r.accuracy
		row = append(row, digits(r.accuracy), whole(ms(r.worst)))
	}
	one, err := b.tuned(p, on, baseline.NoSwitching)
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
