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
type TestSettings struct {
	Attainment float64       // share of requests in time; if 0, the percentile of each model or class
	Runs       int           // replications; if 0, 5
	Duration   time.Duration // of the arrivals of a run; if 0, WithDefaults computes it
	Seed       uint64        // if 0, 1
	TraceDir   string        // folder of the workload, from which the path of its trace is taken; if empty, the current one
}

// Shares returns for each model or class of a plan the share of requests that must be in time: the one set for the
// test, or else the plan's own.
func (a TestSettings) Shares(p *formats.Plan) []float64 {
	shares := p.AttainmentShares()
	for i := range shares {
		shares[i] = cmp.Or(a.Attainment, shares[i])
	}
	return shares
}

// WithDefaults returns the settings of a simulation test with defaults for what is not set, except for the
// attainment. The default duration of a run brings about the given number of requests at the plan's rates, and
// lasts from minDuration to maxDuration.
func (settings TestSettings) WithDefaults(p *formats.Plan, requests float64, minDuration, maxDuration time.Duration) (TestSettings, error) {
	if math.IsNaN(settings.Attainment) || settings.Attainment < 0 || settings.Attainment > 1 {
		return settings, &document.Error{Path: "--attainment", Found: fmt.Sprint(settings.Attainment), Expected: "a share from 0 to 1"}
	}
	if settings.Runs == 0 {
		settings.Runs = 5
	}
	if settings.Seed == 0 {
		settings.Seed = 1
	}
	// The arrivals of a run last until the requested number of requests has arrived at the plan's rates (requests/s).
	if settings.Duration == 0 {
		rps := 0.0
		for _, m := range p.ServedModels() {
			rps += m.RPS
		}
		seconds := min(max(math.Ceil(requests/max(rps, 1e-3)), minDuration.Seconds()), maxDuration.Seconds())
		settings.Duration = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	}
	return settings, nil
}
