package baseline

import (
	"fmt"
	"slices"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/planner/gear"
)

// Problem is a family's planning problem on some devices, planned for the
// requests' own rates, as an operator who measured them would.
func Problem(f *published.Family, devices, ranges int, slo time.Duration) (*gear.Problem, error) {
	p := &gear.Problem{Grid: f.Grid, Kinds: []gear.Kind{{Name: "device", Devices: devices, Memory: f.Memory, Price: 1}}, SLO: slo, Percentile: percentile}
	for _, m := range f.Models {
		p.Models = append(p.Models, gear.NewModel(m.Name, gear.Variant{MedianTimes: m.Times, Memory: m.Memory}))
	}
	peak := f.Rates.Peak()
	p.RangeEdges, p.RangeWeights, p.RateShares = gear.EqualRanges(peak, ranges), gear.ServedWeights(f.Rates, peak, ranges, planSeed), gear.MeasuredWeights(f.Rates, peak, ranges)
	var err error
	if p.Thresholds, p.PlanningSamples, p.HeldOutSamples, err = gear.GradeRecords(f.Records, f.ModelNames(), f.Grid); err != nil {
		return nil, fmt.Errorf("family %s: %w", f.Name, err)
	}
	return p, nil
}

// onDevices is the problem on so many devices of so much memory.
func onDevices(p *gear.Problem, devices int, memory int64) *gear.Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	q.Kinds[0].Devices, q.Kinds[0].Memory = devices, memory
	return &q
}

const (
	percentile = .95 // of all SLOs
	planSeed   = 7
)
