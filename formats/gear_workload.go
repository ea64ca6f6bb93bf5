package formats

import (
	"fmt"

	"inferplan/formats/document"
)

// Cascade is a family of models, in the order of size in which they are asked.
type Cascade struct {
	Family []string   `json:"family"`
	SLO    CascadeSLO `json:"slo"`
	QPS    CascadeQPS `json:"qps"`
	Grid   int        `json:"grid,omitempty" default:"20, of more than four models 10"` // quantile thresholds per model
}

// GridSize returns how many levels of certainty each model has when cascades are planned: Grid, or its default. A
// finer grid makes cascades that are right more often, also on held-out samples, but the number of cascades grows
// with the models and has to stay below about ten thousand.
func (c *Cascade) GridSize() int {
	switch {
	case c.Grid != 0:
		return c.Grid
	case len(c.Family) > 4:
		return 10
	}
	return 20
}

// CascadeSLO is a latency target at a percentile, an accuracy target, or both.
// With a latency accuracy is maximised, with an accuracy latency is minimised,
// with both the number of devices is.
type CascadeSLO struct {
	Latency    document.SLO `json:"latency,omitzero"`
	Percentile string       `json:"percentile,omitempty" check:"percentile"`
	Accuracy   float64      `json:"accuracy,omitempty" check:"share"`
	Scope      string       `json:"over,omitempty" default:"ranges" check:"ranges|requests"` // ranges: every range of rates keeps the latency; requests: all requests together do; default: ranges, or with measured rates whichever is better for one cascade in all ranges
}

// Values of CascadeSLO.Scope.
const (
	ScopeRanges   = "ranges"
	ScopeRequests = "requests"
)

// CascadeQPS is the range of request rates to plan for and how often each occurs.
type CascadeQPS struct {
	Max          float64   `json:"max,omitempty"`
	Ranges       int       `json:"ranges,omitempty"`
	Distribution string    `json:"distribution,omitempty" check:"zipf|uniform"` // zipf, uniform
	MeasuredFile string    `json:"measured,omitempty"`                          // file of second,count
	Histogram    []float64 `json:"histogram,omitempty" check:"nonnegative"`
}

var cascadePart = workloadPart{name: "cascade", kind: PlanGear, section: (*Cascade)(nil), schema: schemaFile("workload.cascade")}

// CascadeOf returns the cascade that a workload asks for, or nil if it asks for something else.
func CascadeOf(w *Workload) *Cascade { return workloadSection[*Cascade](w) }

// Files returns the file of measured rates, if the cascade names one.
func (d *Cascade) Files() []SectionFile {
	if d.QPS.MeasuredFile == "" {
		return nil
	}
	return []SectionFile{{Role: "qps", Path: d.QPS.MeasuredFile}}
}

// check reports to c what is wrong with a workload's cascade: the family of models, the latency or accuracy that the
// plan must reach, and the distribution of request rates. A cascade asks small models first and larger ones if these
// are not certain.
func (d *Cascade) check(c *document.Checker) {
	c.NotEmpty(len(d.Family), "cascade.family", "at least one model")
	indexByName := map[string]int{}
	for i, m := range d.Family {
		c.Name(indexByName, i, m, "cascade.family[%d]", i)
	}
	switch {
	case d.SLO.Latency.IsZero() && d.SLO.Accuracy == 0:
		c.Fail("cascade.slo", "neither latency nor accuracy", "one of the two, or both: what is left out is optimised, with both the number of devices", "")
	case !d.SLO.Latency.IsZero():
		checkSlo(c, d.SLO.Latency, "cascade.slo.latency")
	}
	c.HintIf(d.SLO.Scope == ScopeRequests && d.SLO.Latency.IsZero(), "cascade.slo.over", document.Quote(d.SLO.Scope), "a latency beside it", "without one the least latency of every range is looked for")
	c.FailIf(d.Grid != 0 && (d.Grid < 2 || d.Grid > MaxGrid), "cascade.grid", d.Grid, "2 to %d", MaxGrid)
	d.QPS.check(c)
}

// maxRanges bounds the number of ranges of rates, each of which has a gear.
const maxRanges = 1000

// check reports to c what is wrong with the distribution of request rates. It has exactly one source: a named
// distribution, a file of measured rates, or a histogram.
func (q *CascadeQPS) check(c *document.Checker) {
	sources := 0
	if q.Distribution != "" {
		sources++
		c.FailIf(!(q.Max > 0), "cascade.qps.max", q.Max, "a positive rate")
		c.FailIf(q.Ranges == 0, "cascade.qps.ranges", q.Ranges, "1 to %d", maxRanges)
	}
	if q.MeasuredFile != "" {
		sources++
	}
	if q.Histogram != nil {
		sources++
		sum := 0.0
		for _, x := range q.Histogram {
			sum += x
		}
		c.FailIf(sum == 0, "cascade.qps.histogram", "no weight at all", "at least one positive weight")
		c.FailIf(!(q.Max > 0), "cascade.qps.max", q.Max, "the rate at which the last bar ends")
	}
	c.FailIf(sources != 1, "cascade.qps", fmt.Sprintf("%d of distribution, measured and histogram", sources), "exactly one of them")
	c.FailIf(q.Max < 0 || q.Max > 0 && q.Max < minRate, "cascade.qps.max", q.Max, "a rate of %g or more", minRate)
	c.FailIf(q.Ranges < 0 || q.Ranges > maxRanges, "cascade.qps.ranges", q.Ranges, "1 to %d", maxRanges)
}
