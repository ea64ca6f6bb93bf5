package main

import (
	"fmt"
	"math"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/fleet"
	"inferplan/bench/table"
)

// slice is rows of the trace.
type slice struct{ from, to int }

// tuned are the rows that QLM's options were chosen on; untouched are others.
var (
	tuned     = slice{0, 6000}
	untouched = slice{12000, 18000}
)

// asked is the attainment in percent that is asked at the three loads, by workload
// and slice; 0 stands for none.
var asked = map[string][3]float64{
	"W_A/0": {98, 93, 86}, "W_A/12000": {99, 97.5, 94}, "W_C/0": {94, 87, 81},
}

// rates are requests per second on four A100s, by workload: loads of .4, .7 and 1 by
// the mean request of the rows that estimators are calibrated on. The tables say the
// load by the work of the rows that are run.
var rates = map[string][3]float64{"W_A": {6.12, 10.71, 15.30}, "W_B": {3.63, 6.36, 9.08}, "W_C": {6.12, 10.71, 15.30}}

var loads = [3]float64{0.4, 0.7, 1.0}

// seeds of a case; the first alone with -small.
const seeds = 5

// pooled is a case over its seeds.
type pooled struct {
	attainment     []float64 // percent, by seed
	class          [3]float64
	throughput     float64
	swaps, evicted float64 // per 100 requests
	load           float64
	used           float64 // instances
	searched       float64 // positions
	kv             float64 // percent of KV memory in use
	rps            float64
}

// add takes one of n runs.
func (p *pooled) add(o *fleet.Outcome, n int) {
	p.attainment = append(p.attainment, 100*o.Attainment())
	for k := range p.class {
		p.class[k] += 100 * o.Class[k] / float64(n)
	}
	p.throughput += o.Throughput / float64(n)
	p.load += o.Load / float64(n)
	p.used += o.Used / float64(n)
	p.kv += 100 * o.KV / float64(n)
	p.searched += float64(o.Searched) / float64(n)
	p.swaps += 100 * float64(o.Swaps) / float64(o.Requests) / float64(n)
	p.evicted += 100 * float64(o.Evictions) / float64(o.Requests) / float64(n)
}

// mean is the mean and half the width of the 95 % interval (Student's t).
func (p *pooled) mean() (mean, half float64) {
	n := float64(len(p.attainment))
	for _, x := range p.attainment {
		mean += x / n
	}
	if n < 2 {
		return mean, 0
	}
	for _, x := range p.attainment {
		half += (x - mean) * (x - mean) / (n - 1)
	}
	return mean, student[len(p.attainment)] * math.Sqrt(half/n)
}

// student has the 97.5 % quantiles of Student's t by number of values.
var student = [seeds + 1]float64{2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}

// traces reads the traces once.
func (b *bench) traces() (*fleet.Data, error) {
	if b.fleet != nil {
		return b.fleet, nil
	}
	var err error
	b.fleet, err = fleet.Open(b.data)
	return b.fleet, err
}

// fleets holds the policies against each other on four A100s.
func (b *bench) fleets(t *table.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	t.Columns = []string{"workload, rows", "rps (load by calibration, by these rows)", "policy", "in time %", "30 s", "120 s", "300 s", "requests/s to the last answer", "swaps per 100", "evictions per 100"}
	for _, s := range []slice{tuned, untouched} {
		for i := range fleet.Workloads {
			w := &fleet.Workloads[i]
			for at := range loads {
				got := map[string]*pooled{}
				for _, p := range named("FCFS", "EDF", "priority", "SHEPHERD-like", "partition", "gateway-like", "QLM") {
					x, err := b.measure(d, fleet.Case{Workload: w, Policy: p, RPS: rates[w.Name][at], From: s.from, To: s.to, Instances: 4}, seeds)
					if err != nil {
						return err
					}
					got[p.Name] = x
					mean, half := x.mean()
					t.Add(fmt.Sprintf("%s, %d-%d", w.Name, s.from, s.to-1), fmt.Sprintf("%.2f (%.1f, %.2f)", rates[w.Name][at], loads[at], x.load), p.Name, fmt.Sprintf("%.2f ± %.2f", mean, half),
						fmt.Sprintf("%.1f", x.class[0]), fmt.Sprintf("%.1f", x.class[1]), fmt.Sprintf("%.1f", x.class[2]), fmt.Sprintf("%.2f", x.throughput), fmt.Sprintf("%.1f", x.swaps), fmt.Sprintf("%.1f", x.evicted))
				}
				b.fleetFigures(w.Name, s, at, got)
			}
		}
	}
	t.Note("Four A100s, Azure's conversations of 2023 with their lengths and compressed arrivals, seeds 1 to %d; intervals are 95 %% by Student's t. Answers within 30, 120 and 300 s (shares .2, .4, .4).", seeds)
	return nil
}

// fleetFigures adds what is claimed of a workload at a load.
func (b *bench) fleetFigures(name string, s slice, at int, got map[string]*pooled) {
	where := fmt.Sprintf("%s, %.2f rps on 4 A100, rows %d-%d: ", name, rates[name][at], s.from, s.to-1)
	qlm, half := got["QLM"].mean()
	f := figures.Figure{Claim: where + "requests in time under QLM", Source: "QLM, section 8; mean of seeds", Measured: qlm, Interval: &[2]float64{qlm - half, qlm + half}, Unit: "%"}
	if least := asked[fmt.Sprintf("%s/%d", name, s.from)]; least[at] > 0 {
		f.Asked, f.Holds = fmt.Sprintf("at least %g", least[at]), figures.If(qlm >= least[at])
	}
	if name == "W_B" {
		edf, _ := got["EDF"].mean()
		f.Asked, f.Holds = fmt.Sprintf("at least %.2f (EDF less .5)", edf-0.5), figures.If(qlm >= edf-0.5)
	}
	b.figures = append(b.figures, f)
	if name == "W_A" {
		b.throughput(name, s, at, got["QLM"], got["SHEPHERD-like"])
	}
}

// throughput holds QLM's requests a second until the last answer against those of
// SHEPHERD-like, and shows the most that any policy could reach.
func (b *bench) throughput(name string, s slice, at int, qlm, other *pooled) {
	gain, rate := 100*(qlm.throughput/other.throughput-1), rates[name][at]
	b.figures = append(b.figures, figures.Figure{
		Claim:  fmt.Sprintf("%s, %.2f rps on 4 A100, rows %d-%d: throughput above SHEPHERD-like", name, rate, s.from, s.to-1),
		Source: "QLM, section 8; requests by the time to the last answer", Asked: "at least 20", Measured: gain, Unit: "%", Holds: figures.If(gain >= 20),
		Note: fmt.Sprintf("%.2f against %.2f requests a second. They come at %.2f, and no policy answers before the last one came: more than %.1f %% is not possible", qlm.throughput, other.throughput, rate, 100*(rate/other.throughput-1)),
	})
}

// ceiling returns how much more throughput than SHEPHERD-like any policy could have at
// the lowest load, where arrivals end the run.
func (b *bench) ceiling(t *table.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	t.Columns = []string{"rows", "SHEPHERD-like, requests/s", "most that any policy could have above it, %"}
	for _, s := range []slice{tuned, untouched} {
		rate := rates["W_A"][0]
		other, err := b.measure(d, fleet.Case{Workload: &fleet.Workloads[0], Policy: fleet.Named("SHEPHERD-like"), RPS: rate, From: s.from, To: s.to, Instances: 4}, seeds)
		if err != nil {
			return err
		}
		highest := 0.0
		for seed := range seeds {
			c := fleet.Case{Workload: &fleet.Workloads[0], RPS: rate, From: s.from, To: s.to, Seed: uint64(seed + 1)}
			x, err := measured(b.keep, fmt.Sprintf("ceiling/%g/%d-%d/%d", c.RPS, c.From, c.To, c.Seed), func() (float64, error) { return d.Ceiling(&c) })
			if err != nil {
				return err
			}
			highest += x / seeds
		}
		most := 100 * (highest/other.throughput - 1)
		t.Add(fmt.Sprintf("%d-%d", s.from, s.to-1), fmt.Sprintf("%.2f", other.throughput), fmt.Sprintf("%.1f", most))
		b.figures = append(b.figures, figures.Figure{
			Claim:  fmt.Sprintf("W_A, %.2f rps on 4 A100, rows %d-%d: the most throughput above SHEPHERD-like that any policy could have", rate, s.from, s.to-1),
			Source: "no policy answers a request sooner than an idle instance does that has its model", Measured: most, Unit: "%",
		})
	}
	t.Note("W_A at 6.12 requests a second on four A100s, five seeds: throughput is requests by the time to the last answer. The last of them take their time even alone.")
	return nil
}
