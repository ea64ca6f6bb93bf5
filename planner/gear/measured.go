package gear

import (
	"fmt"
	"path/filepath"
	"slices"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
)

// defaultMeasuredRanges is the number of ranges that measured rates are cut into by default. More gain little
// (docs/methods.md).
const measuredRanges = 10

// setMeasuredRanges reads ranges and weights from a file of requests per second. The weight of a range is the
// share of the requests that its gear serves when these rates go through the policy's switch rule, because
// accuracy counts per request and not per hour.
func (f *resolved) measured(q *formats.CascadeQPS) error {
	// Read the rates.
	path := filepath.FromSlash(q.Measured)
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.in.WorkloadDir, path)
	}
	rates, err := arrivals.PerSecond(path)
	if err != nil {
		if bad := document.Findings(err); bad != nil {
			return err
		}
		return f.in.Fail("workload", "cascade.qps.measured", fmt.Sprintf("%q: %v", q.Measured, err), "a CSV file of second,count that can be read", "the path is taken from the folder of the workload")
	}

	// Number of ranges and highest rate.
	n, peak := q.Ranges, q.Max
	if n == 0 {
		n = measuredRanges
		f.run.Assume("ranges %d of measured rates", n)
	}
	if peak == 0 {
		if peak = slices.Max(rates); !(peak > 0) {
			return f.in.Fail("workload", "cascade.qps.measured", q.Measured+": no request in any second", "a second with requests", "")
		}
		f.run.Assume("max %g requests per second: the highest measured rate", peak)
	}
	if over := slices.Max(rates); over > peak {
		f.run.Warn("measured rates reach %g requests per second, above max %g: they count in the last range", over, peak)
	}
	if n < 1 || n > 1000 || !(peak > 0) {
		return f.in.Fail("workload", "cascade.qps", fmt.Sprintf("%d ranges up to %v requests per second", n, peak), "1 to 1000 ranges up to a positive rate", "")
	}

	// Edges and weights.
	f.weights = "measured"
	p := f.problem
	p.Measured, p.Edges, p.Either = rates, Ranges(peak, n), f.cascade.SLO.Over == ""
	p.Weights, p.ByRate = Served(rates, peak, n, trialSeed), Measured(rates, peak, n)
	return nil
}
