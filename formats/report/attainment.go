package report

import (
	"slices"

	"inferplan/formats"
)

// confidence is that of every interval in a report.
const confidence = 0.95

// Outcomes are numbers of requests: those that came, those of them that were
// answered, and those of the answered that were late.
type Outcomes struct{ Requests, Completed, Late int64 }

// Add takes the requests of another run or model.
func (o *Outcomes) Add(other Outcomes) {
	o.Requests += other.Requests
	o.Completed += other.Completed
	o.Late += other.Late
}

// InTime is how many were answered by their deadline.
func (o *Outcomes) InTime() int64 { return o.Completed - o.Late }

// Goodput is how many were answered by their deadline per second. So it is of
// simulator, server and client.
func (o *Outcomes) Goodput(seconds float64) float64 { return Rate(o.InTime(), seconds) }

// Rate is per second; 0 over no time.
func Rate(n int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// Attained is the share of the requests that were answered in time, 0 to 1:
// (completed - late) / requests, and 1 of none. So docs/formats.md defines it, and
// so it is of simulator, server and client.
func (o *Outcomes) Attained() float64 {
	if o.Requests == 0 {
		return 1
	}
	return float64(o.InTime()) / float64(o.Requests)
}

// Attainment is what was attained over all runs, and its 95 % interval. Both are
// shares of requests, 0 to 1. Where runs differ, the interval is Student's t over
// what each attained. It holds the pooled value, which weighs runs by their
// requests, also where the mean over runs differs from it. Of one run, or of runs
// that agree, the interval is Wilson's (E. B. Wilson 1927), 0 to 1 of no request.
func Attainment(runs ...Outcomes) (share float64, interval [2]float64) {
	var all Outcomes
	values := make([]float64, len(runs))
	for i := range runs {
		all.Add(runs[i])
		values[i] = runs[i].Attained()
	}
	share = all.Attained()
	if slices.Min(values) == slices.Max(values) {
		lo, hi := Wilson(all.InTime(), all.Requests, confidence)
		return share, [2]float64{lo, hi}
	}
	_, lo, hi := MeanInterval(values, confidence)
	return share, [2]float64{max(min(lo, share), 0), min(max(hi, share), 1)}
}

// SetAttainment fills in what the counts of one run of so many seconds attained,
// and its goodput.
func SetAttainment(c *formats.Counts, seconds float64) {
	var interval [2]float64
	all := Outcomes{c.Requests, c.Completed, c.Late}
	c.Attainment, interval = Attainment(all)
	c.AttainmentCI, c.GoodputRPS = &interval, all.Goodput(seconds)
}
