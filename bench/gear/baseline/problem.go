package baseline

import (
	"fmt"
	"slices"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/planner/gear/cascades"
)

// Problem is a family's planning problem on some devices, planned for the
// requests' own rates, as an operator who measured them would.
func Problem(f *published.Family, devices, ranges int, slo time.Duration) (*cascades.Problem, error) {
	p := &cascades.Problem{Grid: f.Grid, Kinds: []cascades.Kind{{Name: "device", Devices: devices, Memory: f.Memory, Price: 1}}, SLO: slo, Percentile: percentile}
	for _, m := range f.Models {
		p.Models = append(p.Models, cascades.NewModel(m.Name, cascades.Variant{MedianTimes: m.Times, Memory: m.Memory}))
	}
	peak := f.Rates.Peak()
	p.RangeEdges, p.RangeWeights, p.RateShares = cascades.EqualRanges(peak, ranges), cascades.ServedWeights(f.Rates, peak, ranges, planSeed), cascades.MeasuredWeights(f.Rates, peak, ranges)
	var err error
	if p.Thresholds, p.PlanningSamples, p.HeldOutSamples, err = cascades.GradeRecords(f.Records, f.ModelNames(), f.Grid); err != nil {
		return nil, fmt.Errorf("family %s: %w", f.Name, err)
	}
	return p, nil
}

// onDevices is the problem on so many devices of so much memory.
func onDevices(p *cascades.Problem, devices int, memory int64) *cascades.Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	q.Kinds[0].Devices, q.Kinds[0].Memory = devices, memory
	return &q
}

const (
	percentile = .95 // of all SLOs
	planSeed   = 7
)
