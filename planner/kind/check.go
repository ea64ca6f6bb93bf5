package kind

import (
	"inferplan/formats"
)

// FindingSeverity is the severity of a finding.
type FindingSeverity string

// A plan with an error does not hold; a warning says what changed.
const (
	Error   FindingSeverity = "error"
	Warning FindingSeverity = "warning"
)

// Finding is a constraint that does not hold, or something that changed.
type Finding struct {
	Severity   FindingSeverity `json:"severity"`
	Constraint string          `json:"constraint"` // slo, devices, pool, placement, memory, ...
	Path       string          `json:"where"`      // field path in the plan
	Found      string          `json:"found,omitempty"`
	Expected   string          `json:"expected,omitempty"`
	Message    string          `json:"message"`

	// Excess is set for an SLO: the latency beyond what the SLO leaves, relative to that.
	Excess float64 `json:"-"`
}

// String returns the finding on one line, for plan check: severity, constraint, message, and in brackets the field
// of the plan with the values found and expected.
func (f Finding) String() string {
	s := string(f.Severity) + ": " + f.Constraint + ": " + f.Message
	if f.Path != "" {
		s += " (" + f.Path
		if f.Found != "" {
			s += ": " + f.Found
		}
		if f.Expected != "" {
			s += ", expected " + f.Expected
		}
		s += ")"
	}
	return s
}

// CheckInput is a plan with what was promised before and the documents of today.
type CheckInput struct {
	Plan     *formats.Plan // the plan under check
	Promised *formats.Plan // the plan promised before; nil if figures are not compared
	// Profile, Cluster and Workload are those of today. If the workload is nil, the plan's own
	// targets hold.
	Profile  *formats.Profile
	Cluster  *formats.Cluster
	Workload *formats.Workload
	// WorkloadDir is the folder of the workload, from which the paths that it contains are
	// taken. It is empty if unknown.
	WorkloadDir string
	// BestPlan is the best plan by the documents of today, or nil if there is none.
	BestPlan *formats.Plan
	// BreaksConstraint says that the plan under check breaks a constraint, so that its rates
	// are no figures.
	BreaksConstraint bool
}

// Reachable returns the largest value of the objective that is possible with the documents of today: the larger of
// current, which the plan under check reaches today, and the value of the best plan of today. A plan under check that
// breaks a constraint does not count. Without a best plan, which shows what is possible, it returns false.
func (t *CheckInput) Reachable(current float64) (float64, bool) {
	switch {
	case t.BestPlan == nil:
		return 0, false
	case t.BreaksConstraint:
		return t.BestPlan.Objective.Value, true
	}
	return max(current, t.BestPlan.Objective.Value), true
}

// FigurePair is a figure of a metric of the gate, before and now.
type FigurePair struct {
	Metric   string // rps, p99, accuracy, cost, block
	Subject  string
	Old, New float64
	Unit     string
	// Shortfall says by how much too few requests are in time today. It is empty if there are enough, or none are counted.
	Shortfall string
}
