package kind

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Asked is what a certification must show. Zero values have defaults, see Of.
type Asked struct {
	Attainment float64       // share of requests in time; 0: what the percentile of each model or class says
	Runs       int           // replications; 5
	Duration   time.Duration // of arrivals per run
	Seed       uint64        // 1
	Dir        string        // folder against which the trace of the workload is read; empty: the current one
}

// Shares returns the share of requests in time that everything a plan serves has to attain.
func (a Asked) Shares(p *formats.Plan) []float64 {
	shares := p.Shares()
	for i := range shares {
		shares[i] = cmp.Or(a.Attainment, shares[i])
	}
	return shares
}

// Of fills in what is not asked of a plan, but for the attainment. Runs then have about so many
// requests, and last from least to most.
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
