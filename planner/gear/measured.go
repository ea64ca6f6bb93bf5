package gear

import (
	"fmt"
	"path/filepath"
	"slices"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/planner/gear/cascades"
)

// defaultMeasuredRanges is the number of ranges that measured rates are cut into by default. More gain little
// (docs/methods.md).
const defaultMeasuredRanges = 10

// setMeasuredRanges reads ranges and weights from a file of requests per second. The weight of a range is the
// share of the requests that its gear serves when these rates go through the rule by which the policy switches
// gears, because accuracy counts per request and not per hour.
func (f *resolvedWorkload) setMeasuredRanges(q *formats.CascadeQPS) error {
	// Read the rates.
	path := filepath.FromSlash(q.MeasuredFile)
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.input.WorkloadDir, path)
	}
	rates, err := arrivals.PerSecond(path)
	if err != nil {
		if findings := document.Findings(err); findings != nil {
			return err
		}
		return f.input.FieldError("workload", "cascade.qps.measured", fmt.Sprintf("%q: %v", q.MeasuredFile, err), "a CSV file of second,count that can be read", "the path is taken from the folder of the workload")
	}

	// Number of ranges and highest rate.
	n, peak := q.Ranges, q.Max
	if n == 0 {
		n = defaultMeasuredRanges
		f.run.Assume("ranges %d of measured rates", n)
	}
	if peak == 0 {
		if peak = slices.Max(rates); !(peak > 0) {
			return f.input.FieldError("workload", "cascade.qps.measured", q.MeasuredFile+": no request in any second", "a second with requests", "")
		}
		f.run.Assume("max %g requests per second: the highest measured rate", peak)
	}
	if maxRate := slices.Max(rates); maxRate > peak {
		f.run.Warn("measured rates reach %g requests per second, above max %g: they count in the last range", maxRate, peak)
	}
	if n < 1 || n > 1000 || !(peak > 0) {
		return f.input.FieldError("workload", "cascade.qps", fmt.Sprintf("%d ranges up to %v requests per second", n, peak), "1 to 1000 ranges up to a positive rate", "")
	}

	// Edges and weights.
	f.weightsSource = "measured"
	p := f.problem
	p.MeasuredRates, p.RangeEdges, p.ScopeUnspecified = rates, cascades.EqualRanges(peak, n), f.cascade.SLO.Scope == ""
	p.RangeWeights, p.RateShares = cascades.ServedWeights(rates, peak, n, trialSeed), cascades.MeasuredWeights(rates, peak, n)
	return nil
}
