package deploy

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/report"
)

// Score is the outcome of some runs of a pool or of a layout.
type Score struct {
	// ByItem has the outcomes by item of the problem. A run that was broken off has no usable outcomes, so
	// its score has none.
	ByItem []report.Outcomes
	// Broken says that a run was broken off, or that the layout was refused without a run. It does not
	// hold.
	Broken bool
	// SecondThird and LastThird are the mean number of requests in the system during the second and the
	// last third of the arrivals. LastArrivals is the number of requests that arrived in the last third.
	// All three are summed over the runs.
	SecondThird, LastThird, LastArrivals float64
}

// newScore returns a score without outcomes.
func (p *Problem) newScore() Score { return Score{ByItem: make([]report.Outcomes, len(p.Items))} }

// add adds the outcomes of another run, or of a pool with other items, to a score.
func (s *Score) add(o *Score) {
	s.Broken = s.Broken || o.Broken
	s.SecondThird, s.LastThird, s.LastArrivals = s.SecondThird+o.SecondThird, s.LastThird+o.LastThird, s.LastArrivals+o.LastArrivals
	for i := range o.ByItem {
		s.ByItem[i].Add(o.ByItem[i])
	}
}

// OutcomesOf returns how many requests of a judge group (classes judged together) came, ended and were late.
func (p *Problem) OutcomesOf(s *Score, group int) report.Outcomes {
	var outcomes report.Outcomes
	for i := range s.ByItem {
		if p.Classes[p.Items[i].Class].JudgeGroup == group {
			outcomes.Add(s.ByItem[i])
		}
	}
	return outcomes
}

// missedRequests returns how many requests were not answered in time.
func missedRequests(o report.Outcomes) float64 { return float64(o.Requests - o.InTime()) }

// keepsSLOs returns whether, by the score of some runs, every judge group (classes judged together) has its required share of requests in
// time and the backlog does not grow. slack multiplies the number of late requests that is allowed: 1 for the final test, more for a
// first look. The problem's Surplus, a share of that number, is kept back.
func (p *Problem) keepsSLOs(s *Score, slack float64) bool {
	if s.Broken || p.backlogGrows(s) {
		return false
	}
	for j := range p.judgeGroups() {
		if o := p.OutcomesOf(s, j); missedRequests(o) > slack*(1-p.Surplus)*(1-p.requiredShare(j))*float64(o.Requests)*(1+1e-12) {
			return false
		}
	}
	return true
}

// missPenalty returns by how much a pool misses its SLOs, a number that a search makes smaller: summed over the judge groups (classes
// judged together), its late requests divided by those that the group allows in a run. requestCounts has the expected requests of a run
// of the whole layout, by judge group. For the goal goodput it is the late requests per second instead, whatever their group, because that
// goal counts the requests in time. For a run that was broken off it is infinite.
func (p *Problem) missPenalty(s *Score, requestCounts []int64) float64 {
	if s.Broken {
		return math.Inf(1)
	}
	sum := 0.0
	if p.Goodput {
		for i := range s.ByItem {
			if o := &s.ByItem[i]; o.Requests > 0 {
				sum += p.Items[i].RPS * missedRequests(*o) / float64(o.Requests)
			}
		}
		return sum
	}
	for j := range requestCounts {
		if requestCounts[j] > 0 {
			// A group with few requests may allow less than one. Half a request is the least that is divided by.
			allowedLate := max((1-p.requiredShare(j))*float64(requestCounts[j]), 0.5)
			sum += missedRequests(p.OutcomesOf(s, j)) / allowedLate
		}
	}
	return sum
}

// The backlog grows if it rises from the second to the last third of the arrivals by more than a share of
// the arrivals (minGrowthShare) and by more standard deviations than arrivals and departures in balance
// would have (growthSigmas).
const (
	minGrowthShare = 0.03
	growthSigmas   = 2.5
)

// backlogGrows returns whether the requests in the system are more in the last third of the runs' arrivals than in the second, by more
// than chance explains: then the layout cannot keep up, and holds only for the length of a run. Replayed requests have no rate beyond the
// run, so for them it returns false.
func (p *Problem) backlogGrows(s *Score) bool {
	if p.Replay != nil {
		return false
	}

	// cv is the coefficient of variation of the times between arrivals, 1 for Poisson arrivals. A number n of arrivals in some time then
	// has the variance n cv². As many departures are taken to have the variance n.
	cv := 1.0
	if p.Arrivals != nil && p.Arrivals.CV > 0 {
		cv = p.Arrivals.CV
	}
	growthSD := math.Sqrt(s.LastArrivals * (1 + cv*cv))
	return s.LastThird-s.SecondThird > max(minGrowthShare*s.LastArrivals, growthSigmas*growthSD)
}

// runWatcher judges the answers of a run as the simulator does, and breaks the run off once so many are
// late that the layout cannot hold.
type runWatcher struct {
	p           *Problem
	items       []int // by model of the run
	score       *Score
	span        time.Duration // length of the arrivals
	stop        func()        // breaks the run off
	lateCounts  []int64       // by judge group
	allowedLate []float64     // by judge group. If it is nil, the run is never broken off.
}

// lateAllowance is how many times the allowed late requests a run may have before it is broken off.
const lateAllowance = 4

// minLateCount is a number of late requests of a judge group for which a run is never broken off, however few the group may have late.
const minLateCount = 10

// recordAnswer notes one answer of a run in its score, and breaks the run off once more requests of a judge group (classes judged
// together) are late than the layout may have. The simulator calls it for every answer (sim.Config.OnJudged). model is the index of the run's
// items, and isLate says whether the answer missed its SLO.
func (w *runWatcher) recordAnswer(model int32, arrivedAt, answeredAt time.Duration, isLate bool) {
	// The time that requests spend in a third, over its length, sums to the mean backlog.
	third := w.span / 3
	w.score.SecondThird += float64(commonTime(arrivedAt, answeredAt, third, 2*third)) / float64(third)
	w.score.LastThird += float64(commonTime(arrivedAt, answeredAt, 2*third, 3*third)) / float64(third)
	if arrivedAt >= 2*third {
		w.score.LastArrivals++
	}
	if !isLate || w.allowedLate == nil {
		return
	}
	j := w.p.Classes[w.p.Items[w.items[model]].Class].JudgeGroup
	if w.lateCounts[j]++; float64(w.lateCounts[j]) > w.allowedLate[j] {
		w.score.Broken = true
		w.stop()
	}
}

// commonTime returns how long the time from `from` to `to` overlaps with that from `begin` to `end`; 0 if not at all.
func commonTime(from, to, begin, end time.Duration) time.Duration {
	return max(min(to, end)-max(from, begin), 0)
}

// recordReport adds the outcomes of a run's report to the score.
func (w *runWatcher) recordReport(r *formats.Report) {
	for n, i := range w.items {
		m := &r.Models[n]
		w.score.ByItem[i].Add(report.Outcomes{Requests: m.Requests, Completed: m.Completed, Late: m.Late})
	}
}
