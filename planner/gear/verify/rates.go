package verify

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/sim"
)

// Limits on the streams of the measured rates that a plan is run on, and on their requests together. At least one
// is run.
const (
	maxRateStreams  = 3
	maxRateRequests = 1_200_000
)

// isOverMeasured reports whether the SLO is over all requests at measured rates. Then no range must hold its upper
// edge for long.
func (c *gearChecker) isOverMeasured() bool {
	return c.gear.SLOScope == formats.ScopeRequests && c.gear.Weights == "measured"
}

// checkMeasuredRates simulates a plan on streams (random arrivals) of today's measured rates, if its SLO is over all
// requests and a gear has more work at its upper edge than the devices have time for. Then only these rates can show
// that the SLO is kept. It adds an error if most streams miss the SLO, and a warning if some do.
func (c *gearChecker) checkMeasuredRates(g *gearsToday) {
	if !c.isOverMeasured() || !slices.ContainsFunc(g.gears, func(evaluated gearToday) bool { return evaluated.loadToday > 1+tolerance }) {
		return
	}
	const slo, path = "slo", "gear.gears"

	// Read the rates.
	rates, err := c.measuredRates()
	if err != nil {
		c.AddError("qps", "gear.weights", err.Error(), "the measured rates of the workload", "whether the plan keeps its SLO cannot be told")
		return
	}
	if rates == nil {
		c.AddWarning(slo, path, "more work at an upper edge than the devices have the time for", "the measured rates, named by the workload", "whether the plan keeps its SLO cannot be told without them")
		return
	}
	requests := 0.0
	for _, rate := range rates {
		requests += rate
	}

	// Run the streams.
	n, lateStreams, worstTail := max(1, min(maxRateStreams, int(maxRateRequests/requests))), 0, time.Duration(0)
	for k := range n {
		tail, err := c.measuredTail(g, rates, k)
		if err != nil {
			c.AddError(slo, path, err.Error(), "a run of the plan on the measured rates", "whether the plan keeps its SLO cannot be told")
			return
		}
		if worstTail = max(worstTail, tail); tail > c.gear.SLOUS.D() {
			lateStreams++
		}
	}

	// Report.
	report := c.AddWarning
	if 2*lateStreams > n {
		report = c.AddError
	}
	if lateStreams > 0 {
		report(slo, path, document.Micros(worstTail).String(), "at most "+c.gear.SLOUS.String(), "on %d of %d streams at the measured rates all requests together do not keep the SLO", lateStreams, n)
	}
}

// measuredRates returns the requests of every second in the file that today's workload names. If it names none, or the
// folder from which the file's path starts is not known, it returns nil without an error.
func (c *gearChecker) measuredRates() ([]float64, error) {
	if c.cascade == nil || c.cascade.QPS.MeasuredFile == "" {
		return nil, nil
	}
	path := filepath.FromSlash(c.cascade.QPS.MeasuredFile)
	if !filepath.IsAbs(path) {
		if c.workloadDir == "" {
			return nil, nil
		}
		path = filepath.Join(c.workloadDir, path)
	}
	rates, err := arrivals.PerSecond(path)
	if err != nil {
		return nil, fmt.Errorf("reading the measured rates: %w", err)
	}
	return rates, nil
}

// measuredTail returns the latency at the plan's percentile over all requests of a stream at measured rates, with
// today's latencies.
func (c *gearChecker) measuredTail(g *gearsToday, rates []float64, stream int) (time.Duration, error) {
	t, err := tablesWithTimes(c.Plan, g.todayTimes)
	if err != nil {
		return 0, err
	}
	source := arrivals.PoissonOf(rates, seeded.New(c.Plan.Seed, fmt.Sprintf("check/rates/%d", stream)))
	return tailOfRun(context.Background(), c.Plan, sim.Config{Tables: t, Source: source}, 0)
}
