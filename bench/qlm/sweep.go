package main

import (
	"fmt"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/qlm/fleet"
)

// sweep is policies at some points: values of a quantity of which a figure of the paper says how policies depend on it, or
// workloads at rates.
type sweep struct {
	name, source string
	axis         string
	points       []point
	policies     []*fleet.Policy
	firstSeed    uint64 // 0 stands for 1
	seeds        int    // 0 stands for the flag's
	claims       func(r *instrument.Run, got *swept)
}

// point is a value of the quantity. Without rows, its case takes those of the flag.
type point struct {
	x     float64
	label string // in the table; empty stands for x
	fleet.Case
}

// swept holds the results of a sweep.
type swept struct {
	*sweep
	note string            // rows and seeds
	runs []map[string]runs // by point and policy
}

// at returns the runs of a policy at a point.
func (s *swept) at(point int, policy string) runs { return s.runs[point][policy] }

// runs are the outcomes of a case by seed.
type runs []*fleet.Outcome

// mean returns the mean of a quantity over the runs.
func (list runs) mean(quantity func(o *fleet.Outcome) float64) (mean float64) {
	for _, o := range list {
		mean += quantity(o) / float64(len(list))
	}
	return mean
}

func inTime(o *fleet.Outcome) float64 { return 100 * o.Attainment() }

// inTime returns the percentage of requests in time.
func (list runs) inTime() float64 { return list.mean(inTime) }

// interval returns the 95 % interval of inTime; it is nil for one run.
func (list runs) interval() *[2]float64 {
	var values []float64
	for _, o := range list {
		values = append(values, inTime(o))
	}
	_, interval := instrument.Mean(values)
	return interval
}

// urgent returns the percentage of requests of the 30 s class in time.
func (list runs) urgent() float64 {
	return list.mean(func(o *fleet.Outcome) float64 { return 100 * o.Class[0] })
}

// throughput returns requests per second to the last answer.
func (list runs) throughput() float64 {
	return list.mean(func(o *fleet.Outcome) float64 { return o.Throughput })
}

// kv returns the percentage of KV memory in use.
func (list runs) kv() float64 {
	return list.mean(func(o *fleet.Outcome) float64 { return 100 * o.KV })
}

// evicted returns evictions per 100 requests.
func (list runs) evicted() float64 {
	return list.mean(func(o *fleet.Outcome) float64 { return 100 * float64(o.Evictions) / float64(o.Requests) })
}

// prefix returns the percentage of the tokens of prompts that were found in a prefix cache.
func (list runs) prefix() float64 {
	return list.mean(func(o *fleet.Outcome) float64 { return 100 * o.Prefix })
}

// swaps returns changes of model per 100 requests.
func (list runs) swaps() float64 {
	return list.mean(func(o *fleet.Outcome) float64 { return 100 * float64(o.Swaps) / float64(o.Requests) })
}

// run runs a case under n seeds from the first on.
func (b *bench) run(r *instrument.Run, c fleet.Case, firstSeed uint64, n int) (runs, error) {
	d, err := b.traces()
	if err != nil {
		return nil, err
	}
	if b.small {
		n, c.To = 1, min(c.To, c.From+300)
	}
	var list runs
	for seed := range n {
		c.Seed = firstSeed + uint64(seed)
		o, err := instrument.Measured(r, c.Key(), func() (*fleet.Outcome, error) { return d.Measure(r.Ctx, &c) })
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// sweep measures a sweep and states its claims.
func (b *bench) sweep(r *instrument.Run, t *instrument.Table, s *sweep) error {
	seeds := s.seeds
	if seeds == 0 {
		seeds = b.seeds
	}
	got := &swept{sweep: s, note: fmt.Sprintf("%d rows, seeds %d", b.rows, seeds)}
	t.Columns = []string{s.axis, "policy", "in time %", "30 s class %", "requests/s to the last answer", "swaps per 100", "evictions per 100", "KV memory in use %", "prefix tokens found %"}
	for i := range s.points {
		p := &s.points[i]
		if p.label == "" {
			p.label = fmt.Sprint(p.x)
		}
		got.runs = append(got.runs, map[string]runs{})
		for _, policy := range s.policies {
			c := p.Case
			c.Policy = policy
			if c.To == 0 {
				c.To = b.rows
			}
			list, err := b.run(r, c, max(1, s.firstSeed), seeds)
			if err != nil {
				return err
			}
			share := fmt.Sprintf("%.2f", list.inTime())
			if interval := list.interval(); interval != nil {
				share += fmt.Sprintf(" ± %.2f", (interval[1]-interval[0])/2)
			}
			t.Add(p.label, policy.Name, share, fmt.Sprintf("%.1f", list.urgent()), fmt.Sprintf("%.2f", list.throughput()), fmt.Sprintf("%.1f", list.swaps()), fmt.Sprintf("%.1f", list.evicted()), fmt.Sprintf("%.1f", list.kv()), fmt.Sprintf("%.1f", list.prefix()))
			got.runs[i][policy.Name] = list
		}
	}
	t.Note("Means of %d seeds with 95 %% intervals.", seeds)
	s.claims(r, got)
	return nil
}

// paper states what the paper claims beside what a sweep shows.
func (s *swept) paper(r *instrument.Run, text, asked string, measured float64, unit, note string, holds ...bool) {
	r.Figure(claim(text, s.source, asked, measured, unit, strings.TrimLeft(note+"; "+s.note, "; "), holds...))
}

// claim returns the figure of what the paper claims beside what is measured here. It holds in part where some of several
// conditions hold.
func claim(text, source, asked string, measured float64, unit, note string, holds ...bool) figures.Figure {
	n := 0
	for _, h := range holds {
		if h {
			n++
		}
	}
	verdict := figures.Partly
	switch n {
	case 0:
		verdict = figures.No
	case len(holds):
		verdict = figures.Yes
	}
	return figures.Figure{Claim: "paper: " + text, Source: source, Asked: asked, Measured: measured, Unit: unit, Holds: verdict, Note: note}
}
