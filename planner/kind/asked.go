package kind

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// TestSettings are the settings of a certification. Zero values have defaults, see WithDefaults.
type Asked struct {
	Attainment float64       // share of requests in time; if 0, the percentile of each model or class
	Runs       int           // replications; if 0, 5
	Duration   time.Duration // of the arrivals of a run; if 0, WithDefaults computes it
	Seed       uint64        // if 0, 1
	Dir        string        // folder of the workload, from which the path of its trace is taken; if empty, the current one
}

// Shares returns for each model or class of a plan the share of requests that must be in time.
func (a Asked) Shares(p *formats.Plan) []float64 {
	shares := p.Shares()
	for i := range shares {
		shares[i] = cmp.Or(a.Attainment, shares[i])
	}
	return shares
}

// WithDefaults fills in what is not set, except for the attainment. A run then has about the given
// number of requests, and lasts from minDuration to maxDuration.
func (a Asked) Of(p *formats.Plan, requests float64, least, most time.Duration) (Asked, error) {
	if math.IsNaN(a.Attainment) || a.Attainment < 0 || a.Attainment > 1 {
		return a, &document.Error{Path: "--attainment", Found: fmt.Sprint(a.Attainment), Expected: "a share from 0 to 1"}
	}
	if a.Runs == 0 {
		a.Runs = 5
	}
	if a.Seed == 0 {
		a.Seed = 1
	}
	if a.Duration == 0 {
		rps := 0.0
		for _, m := range p.Served() {
			rps += m.RPS
		}
		seconds := min(max(math.Ceil(requests/max(rps, 1e-3)), least.Seconds()), most.Seconds())
		a.Duration = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	}
	return a, nil
}
