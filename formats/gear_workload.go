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

// GridSize returns Grid or its default. A finer grid makes cascades that are right more often, also on held-out
// samples, but the number of cascades has to stay below about ten thousand.
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
	Percentile string       `json:"percentile,omitempty"`
	Accuracy   float64      `json:"accuracy,omitempty"`
	Scope      string       `json:"over,omitempty" default:"ranges"` // ranges: every range of rates keeps the latency; requests: all requests together do; default: ranges, or with measured rates whichever is better for one cascade in all ranges
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
	Distribution string    `json:"distribution,omitempty"` // zipf, uniform
	MeasuredFile string    `json:"measured,omitempty"`     // file of second,count
	Histogram    []float64 `json:"histogram,omitempty"`
}

var cascadePart = workloadPart{name: "cascade", kind: PlanGear, section: (*Cascade)(nil), schema: schemaFile("workload.cascade")}

// CascadeOf returns the cascade that a workload asks for, or nil if it asks for something else.
func CascadeOf(w *Workload) *Cascade {
	if w == nil {
		return nil
	}
	s, _ := w.Section.(*Cascade)
	return s
}

// Files returns the file of measured rates, if the cascade names one.
func (d *Cascade) Files() []SectionFile {
	if d.QPS.MeasuredFile == "" {
		return nil
	}
	return []SectionFile{{Role: "qps", Path: d.QPS.MeasuredFile}}
}

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
	c.FailIf(d.SLO.Accuracy < 0 || d.SLO.Accuracy > 1, "cascade.slo.accuracy", d.SLO.Accuracy, "a share from 0 to 1")
	if d.SLO.Percentile != "" {
		c.Percentile(d.SLO.Percentile, "cascade.slo.percentile")
	}
	if d.SLO.Scope != "" {
		c.OneOf("cascade.slo.over", d.SLO.Scope, ScopeRanges, ScopeRequests)
		if d.SLO.Scope == ScopeRequests && d.SLO.Latency.IsZero() {
			c.Fail("cascade.slo.over", document.Quote(d.SLO.Scope), "a latency beside it", "without one the least latency of every range is looked for")
		}
	}
	c.FailIf(d.Grid != 0 && (d.Grid < 2 || d.Grid > MaxGrid), "cascade.grid", d.Grid, "2 to %d", MaxGrid)
	d.QPS.check(c)
}

// maxRanges bounds the number of ranges of rates, each of which has a gear.
const maxRanges = 1000

func (q *CascadeQPS) check(c *document.Checker) {
	sources := 0
	if q.Distribution != "" {
		sources++
		c.OneOf("cascade.qps.distribution", q.Distribution, "zipf", "uniform")
		c.FailIf(!(q.Max > 0), "cascade.qps.max", q.Max, "a positive rate")
		c.FailIf(q.Ranges == 0, "cascade.qps.ranges", q.Ranges, "1 to %d", maxRanges)
	}
	if q.MeasuredFile != "" {
		sources++
	}
	if q.Histogram != nil {
		sources++
		sum := 0.0
		for i, x := range q.Histogram {
			c.FailIf(x < 0, fmt.Sprintf("cascade.qps.histogram[%d]", i), x, "0 or more")
			sum += x
		}
		c.FailIf(sum == 0, "cascade.qps.histogram", "no weight at all", "at least one positive weight")
		c.FailIf(!(q.Max > 0), "cascade.qps.max", q.Max, "the rate at which the last bar ends")
	}
	c.FailIf(sources != 1, "cascade.qps", fmt.Sprintf("%d of distribution, measured and histogram", sources), "exactly one of them")
	c.FailIf(q.Max < 0 || q.Max > 0 && q.Max < minRate, "cascade.qps.max", q.Max, "a rate of %g or more", minRate)
	c.FailIf(q.Ranges < 0 || q.Ranges > maxRanges, "cascade.qps.ranges", q.Ranges, "1 to %d", maxRanges)
}
