package formats

import (
	"cmp"
	"fmt"
	"strings"
)

// Validate checks what the types of a workload cannot say and returns all
// findings, each with its field path.
func (d *Workload) Validate() error {
	var c checker
	c.header(d, d.Format, FormatWorkload)
	var parts []string
	if d.Models != nil {
		parts = append(parts, "models")
	}
	if d.Cascade != nil {
		parts = append(parts, "cascade")
	}
	if d.Applications != nil {
		parts = append(parts, "applications")
	}
	if d.LLM != nil {
		parts = append(parts, "llm")
	}
	switch {
	case len(parts) == 0:
		c.fail("", "none of models, cascade, applications and llm", "exactly one of them", "")
	case len(parts) > 1:
		c.fail(parts[1], strings.Join(parts, " and "), "exactly one of models, cascade, applications and llm", "make two workloads")
	}
	if d.Models != nil && len(d.Models) == 0 {
		c.fail("models", "an empty list", "at least one model", "")
	}
	seen := map[ModelClass]int{}
	for i := range d.Models {
		c.key(seen, i, d.Models[i].Key(), fmt.Sprintf("models[%d]", i))
		c.workloadModel(&d.Models[i], i)
	}
	c.weights(d.Models)
	if d.Cascade != nil {
		c.cascade(d.Cascade)
	}
	c.arrivals(d.Arrivals)
	return c.err()
}

func (c *checker) workloadModel(m *WorkloadModel, i int) {
	path := fmt.Sprintf("models[%d]", i)
	c.slo(m.SLO, path+".slo")
	if m.Percentile != "" {
		c.percentile(m.Percentile, path+".percentile")
	}
	for _, f := range [...]struct {
		name  string
		value float64
	}{{"weight", m.Weight}, {"batch_build_rps", m.BatchBuildRPS}, {"min_rps", m.MinRPS}} {
		if f.value < 0 {
			c.fail(path+"."+f.name, number(f.value), "a positive number", "")
		}
	}
	if m.MinRPS > 0 && !(m.MinRPS >= minRate && m.MinRPS <= maxRate) {
		c.fail(path+".min_rps", number(m.MinRPS), fmt.Sprintf("0, or a rate from %g to %g", minRate, maxRate), "")
	}
	if m.Accuracy < 0 || m.Accuracy > 1 {
		c.fail(path+".accuracy", number(m.Accuracy), "a share from 0 to 1", "")
	}
}

// Rates that a floor may have: a request in eleven days, and more than any
// cluster serves.
const (
	minRate = 1e-6
	maxRate = 1e9
)

// maxWeights bounds how far weights are apart: a model that weighs less than
// a millionth of another would be lost in the precision of its rate.
const maxWeights = 1e6

// weights checks each weight against the largest.
func (c *checker) weights(models []WorkloadModel) {
	heaviest, most := 0, 0.0
	for i := range models {
		if w := max(models[i].Weight, 0); w > most || w == 0 && most < 1 {
			heaviest, most = i, cmp.Or(w, 1)
		}
	}
	for i := range models {
		switch w := cmp.Or(models[i].Weight, 1); {
		case w > 0 && (w < 1e-9 || w > 1e9):
			c.fail(fmt.Sprintf("models[%d].weight", i), number(w), "a weight from 1e-9 to 1e9", "weights count against each other alone")
		case w > 0 && w*maxWeights < most && most <= 1e9:
			c.fail(fmt.Sprintf("models[%d].weight", i), number(w), fmt.Sprintf("at least a millionth of the largest weight, %g of models[%d]", most, heaviest),
				"min_rps gives a model a floor of its own")
		}
	}
}

func (c *checker) slo(s SLO, path string) {
	switch {
	case s.IsZero():
		c.fail(path, "nothing", "a latency target such as \"200ms\" or \"5x\"", "")
	case s.Duration < 0 || s.Times < 0 || s.Duration != 0 && s.Times != 0:
		c.fail(path, "the target "+s.String(), "a positive duration or a positive multiple", "")
	}
}

func (c *checker) arrivals(a *Arrivals) {
	if a == nil {
		return
	}
	if a.Trace != "" && (a.Process != "" || a.CV != 0) {
		c.fail("arrivals.trace", "a trace beside a process", "one of the two", "")
		return
	}
	if a.Process != "" {
		c.oneOf("arrivals.process", a.Process, "poisson", "gamma", "uniform")
	}
	switch {
	case a.Process == "gamma" && !(a.CV > 0):
		c.fail("arrivals.cv", number(a.CV), "a positive coefficient of variation with process gamma", "1 is Poisson, above it is burstier")
	case a.Process != "gamma" && a.CV != 0:
		c.fail("arrivals.cv", number(a.CV), "no cv: only process gamma has one", "")
	}
}

func (c *checker) cascade(d *Cascade) {
	if len(d.Family) == 0 {
		c.fail("cascade.family", "an empty list", "at least one model", "")
	}
	seen := map[string]int{}
	for i, m := range d.Family {
		c.name(seen, i, m, "cascade.family[%d]", i)
	}
	switch {
	case d.SLO.Latency.IsZero() && d.SLO.Accuracy == 0:
		c.fail("cascade.slo", "neither latency nor accuracy", "one of the two, or both: what is left out is optimised, with both the number of devices", "")
	case !d.SLO.Latency.IsZero():
		c.slo(d.SLO.Latency, "cascade.slo.latency")
	}
	switch {
	case d.SLO.Accuracy < 0 || d.SLO.Accuracy > 1:
		c.fail("cascade.slo.accuracy", number(d.SLO.Accuracy), "a share from 0 to 1", "")
	}
	if d.SLO.Percentile != "" {
		c.percentile(d.SLO.Percentile, "cascade.slo.percentile")
	}
	if d.SLO.Over != "" {
		c.oneOf("cascade.slo.over", d.SLO.Over, OverRanges, OverRequests)
		if d.SLO.Over == OverRequests && d.SLO.Latency.IsZero() {
			c.fail("cascade.slo.over", quote(d.SLO.Over), "a latency beside it", "without one the least latency of every range is looked for")
		}
	}
	if d.Grid < 0 {
		c.fail("cascade.grid", integer64(d.Grid), "1 or more", "")
	}
	c.cascadeQPS(&d.QPS)
}

func (c *checker) cascadeQPS(q *CascadeQPS) {
	ways := 0
	if q.Distribution != "" {
		ways++
		c.oneOf("cascade.qps.distribution", q.Distribution, "zipf", "uniform")
		if !(q.Max > 0) {
			c.fail("cascade.qps.max", number(q.Max), "a positive rate", "")
		}
		if q.Ranges < 1 {
			c.fail("cascade.qps.ranges", integer64(q.Ranges), "1 or more", "")
		}
	}
	if q.Measured != "" {
		ways++
	}
	if q.Histogram != nil {
		ways++
		sum := 0.0
		for i, x := range q.Histogram {
			if x < 0 {
				c.fail(fmt.Sprintf("cascade.qps.histogram[%d]", i), number(x), "0 or more", "")
			}
			sum += x
		}
		if sum == 0 {
			c.fail("cascade.qps.histogram", "no weight at all", "at least one positive weight", "")
		}
		if !(q.Max > 0) {
			c.fail("cascade.qps.max", number(q.Max), "the rate at which the last bar ends", "")
		}
	}
	if ways != 1 {
		c.fail("cascade.qps", fmt.Sprintf("%d of distribution, measured and histogram", ways), "exactly one of them", "")
	}
	if q.Max < 0 {
		c.fail("cascade.qps.max", number(q.Max), "a positive rate", "")
	}
	if q.Ranges < 0 {
		c.fail("cascade.qps.ranges", integer64(q.Ranges), "1 or more", "")
	}
}

// WithDefaults returns the model with what was left out filled in: p99 and
// weight 1.
func (m WorkloadModel) WithDefaults() WorkloadModel {
	if m.Percentile == "" {
		m.Percentile = "p99"
	}
	if m.Weight == 0 {
		m.Weight = 1
	}
	return m
}
