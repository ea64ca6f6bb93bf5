package main

import (
	"fmt"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/qlm/fleet"
)

// fleetCase is a workload with rows of the trace at three rates. QLM's options were chosen on the rows from 0 on, the others
// are untouched.
type fleetCase struct {
	workload, from, to int
	least              [3]float64 // percentage in time that is asked at the rates; 0: as much as EDF less half a point
}

var fleetCases = []fleetCase{
	{0, 0, 6000, [3]float64{98, 93, 86}}, {1, 0, 6000, [3]float64{}}, {2, 0, 6000, [3]float64{94, 87, 81}},
	{0, 12000, 18000, [3]float64{99, 97.5, 94}}, {1, 12000, 18000, [3]float64{}},
}

// rates are requests per second on four A100s, by workload: loads of .4, .7 and 1 by the mean request of the rows that
// estimators are calibrated on.
var (
	loads = [3]float64{0.4, 0.7, 1.0}
	rates = [3][3]float64{{6.12, 10.71, 15.30}, {3.63, 6.36, 9.08}, {6.12, 10.71, 15.30}}
)

// seeds of a case; the first alone with -small.
const seeds = 5

// fleets holds the policies against each other on four A100s.
func (b *bench) fleets(r *instrument.Run, t *instrument.Table) error {
	s := &sweep{axis: "workload, requests/s (load), rows", seeds: seeds, policies: named("FCFS", "EDF", "SHEPHERD-like", "partition", "gateway-like", "QLM")}
	for _, c := range fleetCases {
		w := &fleet.Workloads[c.workload]
		for k, rps := range rates[c.workload] {
			s.points = append(s.points, point{
				label: fmt.Sprintf("%s, %.2f (%g), %d-%d", w.Name, rps, loads[k], c.from, c.to-1),
				Case:  fleet.Case{Workload: w, RPS: rps, From: c.from, To: c.to, Instances: 4},
			})
		}
	}
	s.claims = func(r *instrument.Run, got *swept) {
		for i := range got.points {
			fleetClaims(r, got, i, fleetCases[i/len(loads)].least[i%len(loads)])
		}
	}
	return b.sweep(r, t, s)
}

// fleetClaims states what is asked of QLM at a point: requests in time, and on W_A the requests a second until the last answer.
func fleetClaims(r *instrument.Run, got *swept, i int, least float64) {
	p, qlm, shepherd := &got.points[i], got.at(i, "QLM"), got.at(i, "SHEPHERD-like")
	where := fmt.Sprintf("%s, %.2f rps on 4 A100, rows %d-%d: ", p.Workload.Name, p.RPS, p.From, p.To-1)
	asked := fmt.Sprintf("at least %g", least)
	if least == 0 {
		least = got.at(i, "EDF").inTime() - 0.5
		asked = fmt.Sprintf("at least %.2f (EDF less .5)", least)
	}
	r.Figure(figures.Figure{Claim: where + "requests in time under QLM", Source: "QLM, section 8; mean of seeds", Asked: asked, Measured: qlm.inTime(), Interval: qlm.interval(), Unit: "%", Holds: figures.If(qlm.inTime() >= least)})
	if p.Workload != &fleet.Workloads[0] {
		return
	}
	r.AtLeast(where+"throughput above SHEPHERD-like", "QLM, section 8; requests by the time to the last answer", 20, "%", 100*(qlm.throughput()/shepherd.throughput()-1)).Note = fmt.Sprintf("%.2f against %.2f requests a second. They come at %.2f, and no policy answers before the last one came: more than %.1f %% is not possible", qlm.throughput(), shepherd.throughput(), p.RPS, 100*(p.RPS/shepherd.throughput()-1))
}

// admissions holds QLM against other rules where all instances have one model, with rows and seeds that neither options nor
// the rule of admission were tuned on.
func (b *bench) admissions(r *instrument.Run, t *instrument.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	rules := []string{"FCFS", "EDF", "SHEPHERD-like", "gateway-like"}
	s := &sweep{axis: "lengths, load, rows", seeds: seeds, firstSeed: 11, policies: named(append(rules, "no pricing", "QLM")...)}
	for _, x := range []struct {
		name           string
		code, shareGPT bool
		from, to       int
	}{{"code", true, false, 2870, 5670}, {"conversations", false, false, 12000, 15000}, {"ShareGPT", false, true, 12000, 15000}} {
		w := fleet.Workloads[1]
		w.Code, w.ShareGPT = x.code, x.shareGPT
		full, err := d.Full(&w, 4)
		if err != nil {
			return err
		}
		for _, load := range loads {
			s.points = append(s.points, point{
				label: fmt.Sprintf("%s, load %.1f, rows %d-%d", x.name, load, x.from, x.to-1),
				Case:  fleet.Case{Workload: &w, RPS: load * full, From: x.from, To: x.to, Instances: 4},
			})
		}
	}
	s.claims = func(r *instrument.Run, got *swept) {
		for i := range got.points {
			best := rules[0]
			for _, rule := range rules {
				if got.at(i, rule).inTime() > got.at(i, best).inTime() {
					best = rule
				}
			}
			qlm, other := got.at(i, "QLM").inTime(), got.at(i, best).inTime()
			r.AtLeast(fmt.Sprintf("W_B, %s: QLM over the best other rule", got.points[i].label), "one model on four A100s, seeds 11 to 15, neither rows nor seeds tuned on", -0.3, "points of requests in time", qlm-other).Note = fmt.Sprintf("%.2f %% in time, %s %.2f, QLM without pricing %.2f", qlm, best, other, got.at(i, "no pricing").inTime())
		}
	}
	return b.sweep(r, t, s)
}
