package deploy

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/report"
)

// Score is what runs of a pool or of a layout came to.
type Score struct {
	// ByItem has the outcomes by item of the problem. They are of no use in a run that
	// was broken off, so such a score has none.
	ByItem []report.Outcomes
	// Broken says that a run was broken off, or needed none to be refused: it does not
	// hold.
	Broken bool
	// Second and Last are the time that requests spent in the system in the second and
	// the last third of the arrivals, in units of a third; Arrived came in the last.
	Second, Last, Arrived float64
}

func (p *Problem) newScore() Score { return Score{ByItem: make([]report.Outcomes, len(p.Items))} }

// add takes the outcomes of another run, or of a pool of other items.
func (s *Score) add(o *Score) {
	s.Broken = s.Broken || o.Broken
	s.Second, s.Last, s.Arrived = s.Second+o.Second, s.Last+o.Last, s.Arrived+o.Arrived
	for i := range o.ByItem {
		s.ByItem[i].Add(o.ByItem[i])
	}
}

// Of returns the outcomes of the items that are judged by a figure together.
func (p *Problem) Of(s *Score, judged int) report.Outcomes {
	var out report.Outcomes
	for i := range s.ByItem {
		if p.Classes[p.Items[i].Class].Judged == judged {
			out.Add(s.ByItem[i])
		}
	}
	return out
}

// missed is how many were not answered in time.
func missed(o report.Outcomes) float64 { return float64(o.Requests - o.InTime()) }

// holds reports whether every figure is as good as it must be and nothing grows. slack
// times as many misses are allowed.
func (p *Problem) holds(s *Score, slack float64) bool {
	if s.Broken || p.grows(s) {
		return false
	}
	for j := range p.judged() {
		if o := p.Of(s, j); missed(o) > slack*(1-p.Surplus)*(1-p.share(j))*float64(o.Requests)*(1+1e-12) {
			return false
		}
	}
	return true
}

// pain weighs the misses of a pool by what is allowed of all requests, of which totals
// are the numbers; for a goodput, by the rates that they are a part of. It is what a
// search makes smaller. A run that was broken off has no such figure: it is infinite.
func (p *Problem) pain(s *Score, totals []int64) float64 {
	if s.Broken {
		return math.Inf(1)
	}
	sum := 0.0
	if p.Goodput {
		for i := range s.ByItem {
			if o := &s.ByItem[i]; o.Requests > 0 {
				sum += p.Items[i].RPS * missed(*o) / float64(o.Requests)
			}
		}
		return sum
	}
	for j := range totals {
		if totals[j] > 0 {
			sum += missed(p.Of(s, j)) / max((1-p.share(j))*float64(totals[j]), 0.5)
		}
	}
	return sum
}

// Growth of what is in the system from the second to the last third of the arrivals:
// by more than this share of those that arrive, and by more than so many standard
// deviations of arrivals and departures that balance.
const (
	growth       = 0.03
	growthSigmas = 2.5
)

// grows reports whether what waits grows while requests arrive: such a layout holds for
// the length of a run alone. Of requests that are given nothing is known beyond them.
func (p *Problem) grows(s *Score) bool {
	if p.Replay != nil {
		return false
	}
	cv := 1.0
	if p.Arrivals != nil && p.Arrivals.CV > 0 {
		cv = p.Arrivals.CV
	}
	return s.Last-s.Second > max(growth*s.Arrived, growthSigmas*math.Sqrt(s.Arrived*(1+cv*cv)))
}

// watch judges a run by its answers, as the simulator does, and breaks it off once so
// many are late that its layout cannot hold.
type watch struct {
	p       *Problem
	items   []int // by served model
	score   *Score
	span    time.Duration
	stop    func()
	late    []int64
	allowed []float64 // late requests by figure; nil: the run is never broken off
}

// give is how many times the late requests that are allowed a run may have.
const give = 4

// answered implements sim.JudgedFunc.
func (w *watch) answered(model int32, arrived, answered time.Duration, late bool) {
	third := w.span / 3
	w.score.Second += float64(overlap(arrived, answered, third, 2*third)) / float64(third)
	w.score.Last += float64(overlap(arrived, answered, 2*third, 3*third)) / float64(third)
	if arrived >= 2*third {
		w.score.Arrived++
	}
	if !late || w.allowed == nil {
		return
	}
	j := w.p.Classes[w.p.Items[w.items[model]].Class].Judged
	if w.late[j]++; float64(w.late[j]) > w.allowed[j] {
		w.score.Broken = true
		w.stop()
	}
}

// overlap is how long two spans have in common.
func overlap(from, to, begin, end time.Duration) time.Duration {
	return max(min(to, end)-max(from, begin), 0)
}

// took are the outcomes of a report, by item.
func (w *watch) took(r *formats.Report) {
	for n, i := range w.items {
		m := &r.Models[n]
		w.score.ByItem[i].Add(report.Outcomes{Requests: m.Requests, Completed: m.Completed, Late: m.Late})
	}
}
