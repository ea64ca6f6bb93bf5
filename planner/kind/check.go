package kind

import (
	"inferplan/formats"
)

// Severity of a finding.
type Severity string

// A plan with an error finding does not hold; a warning tells what moved.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing that does not hold, or has moved.
type Finding struct {
	Severity   Severity `json:"severity"`
	Constraint string   `json:"constraint"` // slo, devices, pool, placement, memory, ...
	Where      string   `json:"where"`      // field path in the plan
	Found      string   `json:"found,omitempty"`
	Expected   string   `json:"expected,omitempty"`
	Message    string   `json:"message"`

	// Excess is, of an SLO, by how much of what is left for it, relative.
	Excess float64 `json:"-"`
}

// String is the finding on one line.
func (f Finding) String() string {
	s := string(f.Severity) + ": " + f.Constraint + ": " + f.Message
	if f.Where != "" {
		s += " (" + f.Where
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

// Today is a plan beside what was promised before and the documents of today.
type Today struct {
	Plan    *formats.Plan // under check
	Against *formats.Plan // what was promised; nil where figures are not compared
	// Profile, Cluster and Workload are those of today. A workload may be nil:
	// then the plan's own targets count.
	Profile  *formats.Profile
	Cluster  *formats.Cluster
	Workload *formats.Workload
	// WorkloadDir is the folder of the workload, against which the paths that it names
	// are taken; empty: not known.
	WorkloadDir string
	// Planned is the best plan of today; nil where there is none.
	Planned *formats.Plan
	// Broken tells that the plan under check breaks a constraint: what it would
	// carry is no figure.
	Broken bool
}

// Reachable is the most that can be had today: what the plan under check keeps,
// unless it is broken, or what the best plan of today reaches. False where there is
// neither.
func (t *Today) Reachable(kept float64) (float64, bool) {
	switch {
	case t.Planned == nil:
		return kept, !t.Broken
	case t.Broken:
		return t.Planned.Objective.Value, true
	}
	return max(kept, t.Planned.Objective.Value), true
}

// Sample is one figure then and now, of one metric of the gate.
type Sample struct {
	Metric   string // rps, p99, accuracy, cost, block
	What     string
	Old, New float64
	Unit     string
}
