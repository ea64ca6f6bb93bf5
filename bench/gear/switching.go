package main

import (
	"fmt"
	"math"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
)

// crossings are the cases in which plans are compared with one cascade for all rates:
// numbers of devices, and how long a stretch of a trace lasts.
var crossings = map[string]struct {
	devices []int
	seconds int
}{
	"bert5":  {[]int{2, 4}, 240},
	"llama4": {[]int{2, 3, 4, 5, 6, 7, 8, 9}, 1200},
	"imdb3":  {[]int{2, 4, 6}, 240},
}

// Of the streams of requests at random instants that plans and one cascade are judged
// on: how many there are at most, and how many requests they come to. Many requests need
// few streams.
const (
	mostRandom = 20
	together   = 3e7
)

// switching holds plans against the best single cascade of the very trace. That one is
// tuned on the streams that both are judged on: requests that come evenly, and at random
// instants. Both have to keep the SLO on every one of them. Accuracies are those of the
// gears that requests come under, without the luck of the samples that a stream brings.
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
		if !b.traces.MatchString(trace) {
			continue
		}
		if err := b.through(f, g, trace, t); err != nil {
			return err
		}
	}
	return nil
}

// through are the rows of a trace.
func (b *bench) through(f, g *published.Family, trace string, t *table.Table) error {
	random := randomly(max(1, min(mostRandom, int(together/g.Rates.Total()))))
	least, cells, late, streams := []float64{math.Inf(1), math.Inf(1)}, 0, 0, 0
	ratio := g.Rates.Peak() * g.Rates.Duration().Seconds() / g.Rates.Total()
	for _, d := range crossings[f.Name].devices {
		c, err := b.crossing(place{g, d, f.SLO}, random)
		if err != nil {
			return err
		}
		if b.counting != nil {
			continue
		}
		c.row(t, f.Name, trace, fmt.Sprintf("%.2f", ratio), d)
		if late, streams = late+c.ours.late, streams+c.ours.streams; c.one == nil || !c.ours.ok {
			continue
		}
		cells++
		for i := range least {
			least[i] = min(least[i], c.ours.accuracy[i]-c.one.accuracy[i])
		}
	}
	if cells == 0 {
		return nil
	}
	for i, come := range []string{"", ", requests at random instants"} {
		b.figure(figures.Figure{Claim: fmt.Sprintf("accuracy of plans of %s above the best single cascade, least, through %s%s", f.Name, trace, come), Source: "no plan is below no switching",
			Asked: "at least 0", Measured: 100 * least[i], Unit: "points", Holds: figures.If(least[i] > -5e-5),
			Note: fmt.Sprintf("%d numbers of devices, peak over mean %.2f; the cascade keeps the SLO evenly and on %d streams at random instants", cells, ratio, len(random))}, "switching", f)
	}
	b.figure(figures.Figure{Claim: fmt.Sprintf("streams on which plans of %s are late, through %s", f.Name, trace), Source: "no plan is below no switching",
		Asked: "at most 5", Measured: 100 * float64(late) / float64(streams), Unit: "%", Holds: figures.If(20*late <= streams), Note: fmt.Sprintf("%d of %d", late, streams)}, "switching", f)
	return nil
}

// judged holds the results of a system on the streams.
type judged struct {
	ok            bool
	accuracy      [2]float64 // evenly, at random instants
	worst         time.Duration
	late, streams int // those on which the SLO is not kept
}

// crossed is a place: plans, and one cascade for all rates. It is nil if none is in time.
type crossed struct {
	ours, overall judged
	one           *judged
}

func (c *crossed) row(t *table.Table, cells ...any) {
	for _, j := range []judged{c.ours, c.overall} {
		if !j.ok {
			cells = append(cells, "no plan", "", "")
			continue
		}
		cells = append(cells, digits(j.accuracy[1]), whole(ms(j.worst)), fmt.Sprintf("%d of %d", j.late, j.streams))
	}
	if c.one == nil {
		t.Add(append(cells, "none in time", "", "", "")...)
		return
	}
	above := func(j judged) string {
		if !j.ok {
			return ""
		}
		points := func(i int) float64 { return math.Round(1e4*(j.accuracy[i]-c.one.accuracy[i]))/100 + 0 } // no -0
		return fmt.Sprintf("%.2f, %.2f", points(0), points(1))
	}
	t.Add(append(cells, digits(c.one.accuracy[1]), whole(ms(c.one.worst)), above(c.ours), above(c.overall))...)
}

// crossing judges the systems at a place.
func (b *bench) crossing(p place, random []stream) (*crossed, error) {
	on, out := append(random, even), &crossed{}
	for _, one := range []struct {
		make func(place) (*plan, error)
		into *judged
	}{{b.ours, &out.ours}, {b.overall, &out.overall}} {
		v, err := one.make(p)
		if err != nil {
			return nil, err
		}
		if !v.OK {
			continue
		}
		list, err := b.all(v.system, on)
		if err != nil {
			return nil, err
		}
		*one.into = judge(list, p.slo)
	}
	best, err := b.tuned(p, on, alone(baseline.NoSwitching))
	if err != nil || best == nil {
		return out, err
	}
	list, err := b.all(fixed(p, best.Name, best.Tables), on)
	if err != nil {
		return nil, err
	}
	one := judge(list, p.slo)
	out.one = &one
	return out, nil
}

// judge sums up runs, of which the last is that of requests that come evenly.
func judge(list []*baseline.Run, slo time.Duration) judged {
	j := judged{ok: true, streams: len(list), worst: summarise(list).worst}
	for _, r := range list {
		if r.P95 > slo {
			j.late++
		}
	}
	last := len(list) - 1
	j.accuracy = [2]float64{list[last].Expected, summarise(list[:last]).expected}
	return j
}
