package formats

import "encoding/json"

// Workload says what is asked of the cluster. Exactly one of Models, Cascade,
// Applications and LLM is set; the last two are carried undecoded until their
// planners exist.
type Workload struct {
	Format       string          `json:"format"` // inferplan.workload/v1
	Models       []WorkloadModel `json:"models,omitempty"`
	Cascade      *Cascade        `json:"cascade,omitempty"`
	Applications json.RawMessage `json:"applications,omitempty"`
	LLM          json.RawMessage `json:"llm,omitempty"`
	Arrivals     *Arrivals       `json:"arrivals,omitempty"`
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
}

// Arrivals says how requests come.
type Arrivals struct {
	Process string  `json:"process,omitempty"` // poisson (default), gamma, uniform
	CV      float64 `json:"cv,omitempty"`      // of the gaps, with gamma
	Trace   string  `json:"trace,omitempty"`   // a request trace instead of a process
}

// Cascade is a family of models asked in order of size.
type Cascade struct {
	Family []string   `json:"family"`
	SLO    CascadeSLO `json:"slo"`
	QPS    CascadeQPS `json:"qps"`
	Grid   int        `json:"grid,omitempty" default:"10"` // quantile thresholds per model
}

// CascadeSLO is a latency target at a percentile, an accuracy target, or both.
// With a latency accuracy is maximised, with an accuracy latency is minimised,
// with both the number of devices is.
type CascadeSLO struct {
	Latency    SLO     `json:"latency,omitzero"`
	Percentile string  `json:"percentile,omitempty"`
	Accuracy   float64 `json:"accuracy,omitempty"`
	Over       string  `json:"over,omitempty" default:"ranges"` // ranges: every range of rates keeps the latency; requests: all requests together
}

// Of CascadeSLO.Over.
const (
	OverRanges   = "ranges"
	OverRequests = "requests"
)

// CascadeQPS is the range of request rates to plan for and how often each occurs.
type CascadeQPS struct {
	Max          float64   `json:"max,omitempty"`
	Ranges       int       `json:"ranges,omitempty"`
	Distribution string    `json:"distribution,omitempty"` // zipf, uniform
	Measured     string    `json:"measured,omitempty"`     // file of second,count
	Histogram    []float64 `json:"histogram,omitempty"`
}
