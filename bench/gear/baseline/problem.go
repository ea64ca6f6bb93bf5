package baseline

import (
	"fmt"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/planner/gear"
)

// Problem is a family's planning problem on some devices, planned for the
// requests' own rates, as an operator who measured them would.
func Problem(f *published.Family, devices, ranges int, slo time.Duration) (*gear.Problem, error) {
	p := &gear.Problem{Grid: f.Grid, Devices: devices, Memory: f.Memory, SLO: slo, Percentile: percentile}
	for _, m := range f.Models {
		p.Models = append(p.Models, gear.Model{Name: m.Name, Times: m.Times, Memory: m.Memory})
	}
	peak := f.Rates.Peak()
	p.Edges, p.Weights, p.ByRate = gear.Ranges(peak, ranges), gear.Served(f.Rates, peak, ranges, planSeed), gear.Measured(f.Rates, peak, ranges)
	var err error
	if p.Thresholds, p.Planned, p.HeldOut, err = gear.Grade(f.Records, f.ModelNames(), f.Grid); err != nil {
		return nil, fmt.Errorf("family %s: %w", f.Name, err)
	}
	return p, nil
}

const (
	percentile = .95 // of all SLOs
	planSeed   = 7
)
