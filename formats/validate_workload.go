package formats

import (
	"cmp"
	"fmt"
)

// Validate checks what the types of a workload cannot say and returns all
// findings, each with its field path.
func (d *Workload) Validate() error {
	var c checker
	c.header(d, d.Format, FormatWorkload)
	if d.Section == nil {
		names := sectionNames("workload")
		c.fail("", "none of "+listOf(names), "exactly one of them", "")
	} else {
		d.Section.check(&c)
	}
	d.Arrivals.check(&c, "arrivals")
	return c.err()
}

func (m *WorkloadModel) check(c *checker, path string) {
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
	if m.Margin != nil && !(*m.Margin >= 0 && *m.Margin < 1) {
		c.fail(path+".margin", number(*m.Margin), "a share of the SLO from 0 to less than 1", "")
	}
	if !(m.Utilisation == 0 || m.Utilisation >= leastUse && m.Utilisation <= 1) {
		c.fail(path+".utilisation", number(m.Utilisation), fmt.Sprintf("a share from %g to 1", leastUse), "")
	}
	m.Lengths.check(c, path+".lengths")
	if m.Accuracy < 0 || m.Accuracy > 1 {
		c.fail(path+".accuracy", number(m.Accuracy), "a share from 0 to 1", "")
	}
}

// leastUse is the least share of what replicas carry that may be promised.
const leastUse = 0.01

// Rates that a floor may have: a request in eleven days, and more than any
// cluster serves.
const (
	minRate = 1e-6
	maxRate = 1e9
)

func (c *checker) slo(s SLO, path string) {
	switch {
	case s.IsZero():
		c.fail(path, "nothing", "a latency target such as \"200ms\" or \"5x\"", "")
	case s.Duration < 0 || s.Times < 0 || s.Duration != 0 && s.Times != 0:
		c.fail(path, "the target "+s.String(), "a positive duration or a positive multiple", "")
	}
}

func (a *Arrivals) check(c *checker, at string) {
	if a == nil {
		return
	}
	if a.Trace != "" && (a.Process != "" || a.CV != 0) {
		c.fail(at+".trace", "a trace beside a process", "one of the two", "")
		return
	}
	if a.Process != "" {
		c.oneOf(at+".process", a.Process, "poisson", "gamma", "uniform")
	}
	switch {
	case a.Process == "gamma" && !(a.CV > 0):
		c.fail(at+".cv", number(a.CV), "a positive coefficient of variation with process gamma", "1 is Poisson, above it is burstier")
	case a.Process != "gamma" && a.CV != 0:
		c.fail(at+".cv", number(a.CV), "no cv: only process gamma has one", "")
	}
}

// WithDefaults returns the model with what was left out filled in: p99 and
// weight 1.
func (m WorkloadModel) WithDefaults() WorkloadModel {
	m.Percentile, m.Weight = cmp.Or(m.Percentile, "p99"), cmp.Or(m.Weight, 1)
	return m
}
