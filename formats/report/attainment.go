package report

import (
	"slices"

	"inferplan/formats"
)

// confidence is the level of all intervals in a report.
const confidence = 0.95

// Outcomes are numbers of requests: all requests, those that were answered, and the answered ones that were late.
type Outcomes struct{ Requests, Completed, Late int64 }

// Add adds the requests of another run or model.
func (o *Outcomes) Add(other Outcomes) {
	o.Requests += other.Requests
	o.Completed += other.Completed
	o.Late += other.Late
}

// InTime returns how many requests were answered by their deadline.
func (o *Outcomes) InTime() int64 { return o.Completed - o.Late }

// Goodput returns the requests per second that were answered by their deadline. Simulator, server and client all
// use it.
func (o *Outcomes) Goodput(seconds float64) float64 { return Rate(o.InTime(), seconds) }

// Rate returns n per second, or 0 if the time is 0.
func Rate(n int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// Attainment returns the share of the requests that were answered in time: (completed - late) / requests, and 1
// without requests. docs/documents.md defines it so, and simulator, server and client all use it.
func (o *Outcomes) Attainment() float64 {
	if o.Requests == 0 {
		return 1
	}
	return float64(o.InTime()) / float64(o.Requests)
}

// Attainment returns the attainment over all runs, and its 95 % interval, as shares from 0 to 1. If the runs
// differ, the interval is Student's t over the attainments of the runs, extended if needed to hold the pooled
// value, which weighs runs by their requests. For one run, or runs that agree, it is Wilson's interval (E. B.
// Wilson 1927), which is 0 to 1 without requests.
func Attainment(runs ...Outcomes) (share float64, interval [2]float64) {
	var total Outcomes
	values := make([]float64, len(runs))
	for i := range runs {
		total.Add(runs[i])
		values[i] = runs[i].Attainment()
	}
	share = total.Attainment()
	if slices.Min(values) == slices.Max(values) {
		lo, hi := Wilson(total.InTime(), total.Requests, confidence)
		return share, [2]float64{lo, hi}
	}
	_, lo, hi := MeanInterval(values, confidence)
	return share, [2]float64{max(min(lo, share), 0), min(max(hi, share), 1)}
}

// SetAttainment sets the attainment and the goodput of the counts of one run of the given seconds.
func SetAttainment(c *formats.Counts, seconds float64) {
	var interval [2]float64
	total := Outcomes{c.Requests, c.Completed, c.Late}
	c.Attainment, interval = Attainment(total)
	c.AttainmentCI, c.GoodputRPS = &interval, total.Goodput(seconds)
}
