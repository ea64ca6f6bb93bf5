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

// What a check finds, see package kind.
type (
	Severity = kind.Severity
	Finding  = kind.Finding
)

// A plan with an error finding does not hold; a warning tells what moved.
const (
	Error   = kind.Error
	Warning = kind.Warning
)

// BlockChange is a block that costs more or less than it did.
type BlockChange = recompute.BlockChange

// Recompute validates a plan against documents from first principles. workload
// may be nil: then the plan's own targets count. No finding means that all of it
// holds and nothing has moved.
func Recompute(plan *formats.Plan, profile *formats.Profile, cluster *formats.Cluster, workload *formats.Workload) []Finding {
	return Findings(&kind.Today{Plan: plan, Profile: profile, Cluster: cluster, Workload: workload})
}

// Findings are those of Recompute where more is known of today: the folder of the
// workload, whose files are then read.
func Findings(t *kind.Today) []Finding {
	m := methodOf(t.Plan)
	if m == nil {
		return []Finding{{Severity: Error, Constraint: "kind", Where: "kind", Found: strconv.Quote(t.Plan.Kind), Expected: checkable(), Message: cannotCheck}}
	}
	if m.Bucketed == nil {
		return m.Check(t)
	}
	in := kind.Documents{Profile: t.Profile, Workload: t.Workload}
	if _, err := m.Bucketed(&in); err != nil {
		return []Finding{{Severity: Error, Constraint: "workload", Where: "workload", Message: err.Error()}}
	}
	today := *t
	today.Workload = in.Workload
	return m.Check(&today)
}

const cannotCheck = "plans of this kind cannot be checked yet"

// methodOf is the method of a plan's kind; nil where that cannot check.
func methodOf(plan *formats.Plan) *kind.Method {
	if m := planner.MethodOf(plan.Kind); m != nil && m.Check != nil {
		return m
	}
	return nil
}

// checkable lists the kinds that can be checked.
func checkable() string {
	names := slices.DeleteFunc(planner.Kinds(), func(name string) bool { return planner.MethodOf(name).Check == nil })
	return strings.Join(names, " or ")
}

// hasError tells whether a finding says that the plan does not hold.
func hasError(list []Finding) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Severity == Error })
}
