package check

import (
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// The findings of a check, see package kind.
type (
	Severity = kind.FindingSeverity
	Finding  = kind.Finding
)

// A plan with an error does not hold; a warning says what changed.
const (
	Error   = kind.Error
	Warning = kind.Warning
)

// BlockChange is a block whose cost has changed.
type BlockChange = recompute.BlockChange

// Recompute validates a plan against documents from first principles. If workload is nil, the
// plan's own targets hold. Without findings everything holds and nothing has changed.
func Recompute(plan *formats.Plan, profile *formats.Profile, cluster *formats.Cluster, workload *formats.Workload) []Finding {
	return FindingsOf(&kind.CheckInput{Plan: plan, Profile: profile, Cluster: cluster, Workload: workload})
}

// FindingsOf returns the findings of the plan's kind for documents of today: each constraint or statement of the plan that does not hold.
// The input may also have the folder of the workload, whose files are then read. A plan of a kind without a check is an error among the
// findings.
func FindingsOf(t *kind.CheckInput) []Finding {
	m := methodOf(t.Plan)
	if m == nil {
		return []Finding{{Severity: Error, Constraint: "kind", Path: "kind", Found: strconv.Quote(t.Plan.Kind), Expected: checkableKinds(), Message: cannotCheck}}
	}

	// Some kinds plan for buckets of request lengths: the workload gets these before the check.
	if m.UseLengthBuckets == nil {
		return m.Check(t)
	}
	in := kind.Documents{Profile: t.Profile, Workload: t.Workload}
	if _, err := m.UseLengthBuckets(&in); err != nil {
		return []Finding{{Severity: Error, Constraint: "workload", Path: "workload", Message: err.Error()}}
	}
	today := *t
	today.Workload = in.Workload
	return m.Check(&today)
}

const cannotCheck = "plans of this kind cannot be checked yet"

// methodOf returns the method of a plan's kind, or nil if it cannot check.
func methodOf(plan *formats.Plan) *kind.Method {
	if m := planner.MethodOf(plan.Kind); m != nil && m.Check != nil {
		return m
	}
	return nil
}

// checkableKinds lists the kinds that can be checked.
func checkableKinds() string {
	names := slices.DeleteFunc(planner.Kinds(), func(name string) bool { return planner.MethodOf(name).Check == nil })
	return strings.Join(names, " or ")
}

// hasError reports whether a finding is an error.
func hasError(list []Finding) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Severity == Error })
}
