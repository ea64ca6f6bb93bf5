package formats

import "inferplan/formats/document"

// Workload says what is asked of the cluster. The section holds the one thing
// that is asked for. It stands in the document under a name of its own: models,
// cascade, applications or llm.
type Workload struct {
	Format   string          `json:"format"` // inferplan.workload/v1
	Section  WorkloadSection `json:"-" section:"workload"`
	Arrivals *Arrivals       `json:"arrivals,omitempty"`
}

// WorkloadSection is what a workload asks for.
type WorkloadSection interface {
	// Files are the files that the section names.
	Files() []SectionFile

	check(c *document.Checker)
}

// SectionFile is a file that a document names beside itself.
type SectionFile struct {
	Role string // in the inputs of a plan
	Path string // from the folder of the document, with slashes
}

// WorkloadModel is the target and weight of one model, or of one SLO class of it.
type WorkloadModel struct {
	Model         string  `json:"model"`
	SLO           SLO     `json:"slo"`
	Percentile    string  `json:"percentile,omitempty"`                                        // p99 by default
	Weight        float64 `json:"weight,omitempty" default:"1"`                                // 1 by default
	BatchBuildRPS float64 `json:"batch_build_rps,omitempty" default:"the rate of the NP plan"` // rate at which a batch fills, see methods
	MinRPS        float64 `json:"min_rps,omitempty"`
	Accuracy      float64 `json:"accuracy,omitempty"`
	Class         string  `json:"class,omitempty"` // one of several SLO classes of the model
	// Margin is the share of the SLO that is kept back, in place of the option margin.
	Margin *float64 `json:"margin,omitempty" default:"the option margin"`
	// Utilisation is the share of what its replicas carry that is promised; 0: all.
	Utilisation float64 `json:"utilisation,omitempty" default:"1"`
	// Lengths of the requests, for a model that is profiled in length buckets.
	Lengths *Lengths `json:"lengths,omitempty" default:"each bucket alike"`
}

// Arrivals says how requests come.
type Arrivals struct {
	Process string  `json:"process,omitempty"` // poisson (default), gamma, uniform
	CV      float64 `json:"cv,omitempty"`      // of the gaps, with gamma
	Trace   string  `json:"trace,omitempty"`   // a request trace instead of a process
}
