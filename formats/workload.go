package formats

import (
	"cmp"

	"inferplan/formats/document"
)

// Workload describes what the cluster serves. The section holds the models, the cascade, the applications
// or the language models. In the document it stands under that name: models, cascade, applications or llm.
type Workload struct {
	Format   string          `json:"format"` // inferplan.workload/v1
	Section  WorkloadSection `json:"-" section:"workload"`
	Arrivals *Arrivals       `json:"arrivals,omitempty"`
}

// WorkloadSection is the part of a workload for one kind of plan.
type WorkloadSection interface {
	// Files are the files that the section names.
	Files() []SectionFile

	check(c *document.Checker)
}

// SectionFile is another file that a document names.
type SectionFile struct {
	Role string // the role in the inputs of a plan
	Path string // the path from the folder of the document, with slashes
}

// WorkloadModel is the target and weight of one model, or of one SLO class of it.
type WorkloadModel struct {
	Model         string       `json:"model"`
	SLO           document.SLO `json:"slo"`
	Percentile    string       `json:"percentile,omitempty" check:"percentile"`                     // p99 by default
	Weight        float64      `json:"weight,omitempty" default:"1"`                                // 1 by default
	BatchBuildRPS float64      `json:"batch_build_rps,omitempty" default:"the rate of the NP plan"` // rate at which a batch fills, see methods
	MinRPS        float64      `json:"min_rps,omitempty"`
	Accuracy      float64      `json:"accuracy,omitempty" check:"share"`
	Class         string       `json:"class,omitempty"` // one of several SLO classes of the model
	// Margin is the share of the SLO that is kept back, in place of the option margin.
	Margin *float64 `json:"margin,omitempty" default:"the option margin" check:"margin"`
	// Utilisation is the share of the replicas' capacity that is promised. 0 means all.
	Utilisation float64 `json:"utilisation,omitempty" default:"1"`
	// Lengths of the requests, for a model that is profiled in length buckets.
	Lengths *Lengths `json:"lengths,omitempty" default:"each bucket alike"`
}

// Arrivals says how requests come.
type Arrivals struct {
	Process string  `json:"process,omitempty" check:"poisson|gamma|uniform"` // poisson (default), gamma, uniform
	CV      float64 `json:"cv,omitempty"`                                    // coefficient of variation of the gaps, with gamma
	Trace   string  `json:"trace,omitempty"`                                 // a request trace instead of a process
}

// Validate checks the rules that the types of a workload cannot express. It returns all violations, each with its
// field path.
func (d *Workload) Validate() error {
	var c document.Checker
	c.Values(d, d.Format, FormatWorkload, rules)
	if d.Section == nil {
		names := document.Map(workloadParts, func(p *workloadPart) string { return p.name })
		c.Fail("", "none of "+document.List(names), "exactly one of them", "")
	} else {
		d.Section.check(&c)
	}
	d.Arrivals.check(&c, "arrivals")
	return c.Err()
}

// check reports to c what is wrong with a workload's model: its latency target, percentile, weight, rates and
// margins. Zero stands for a value that is left out.
func (m *WorkloadModel) check(c *document.Checker, path string) {
	checkSlo(c, m.SLO, path+".slo")
	for _, f := range [...]struct {
		name  string
		value float64
	}{{"weight", m.Weight}, {"batch_build_rps", m.BatchBuildRPS}, {"min_rps", m.MinRPS}} {
		c.FailIf(f.value < 0, path+"."+f.name, f.value, "a positive number")
	}
	c.FailIf(m.MinRPS > 0 && !(m.MinRPS >= minRate && m.MinRPS <= maxRate), path+".min_rps", m.MinRPS, "0, or a rate from %g to %g", minRate, maxRate)
	c.FailIf(!(m.Utilisation == 0 || m.Utilisation >= minUse && m.Utilisation <= 1), path+".utilisation", m.Utilisation, "a share from %g to 1", minUse)
	m.Lengths.check(c, path+".lengths")
}

// minUse is the smallest share of the replicas' capacity that may be promised.
const minUse = 0.01

// Rates that a floor may have: a request in eleven days, and more than any
// cluster serves.
const (
	minRate = 1e-6
	maxRate = 1e9
)

// checkSlo reports to c a latency target that is absent, negative, or both a duration and a multiple of the
// model's latency.
func checkSlo(c *document.Checker, s document.SLO, path string) {
	switch {
	case s.IsZero():
		c.Fail(path, "nothing", "a latency target such as \"200ms\" or \"5x\"", "")
	case s.Duration < 0 || s.Factor < 0 || s.Duration != 0 && s.Factor != 0:
		c.Fail(path, "the target "+s.String(), "a positive duration or a positive multiple", "")
	}
}

// check reports to c what is wrong with the description of a workload's arrivals: a trace file or a random
// process, of which only gamma has a coefficient of variation. Without a description it reports nothing.
func (a *Arrivals) check(c *document.Checker, fieldPath string) {
	if a == nil {
		return
	}
	if c.FailIf(a.Trace != "" && (a.Process != "" || a.CV != 0), fieldPath+".trace", "a trace beside a process", "one of the two") {
		return
	}
	switch {
	case a.Process == "gamma" && !(a.CV > 0):
		c.Fail(fieldPath+".cv", document.Number(a.CV), "a positive coefficient of variation with process gamma", "1 is Poisson, above it is burstier")
	case a.Process != "gamma" && a.CV != 0:
		c.Fail(fieldPath+".cv", document.Number(a.CV), "no cv: only process gamma has one", "")
	}
}

// WithDefaults returns the model with its defaults filled in: p99 and weight 1.
func (m WorkloadModel) WithDefaults() WorkloadModel {
	m.Percentile, m.Weight = cmp.Or(m.Percentile, "p99"), cmp.Or(m.Weight, 1)
	return m
}
