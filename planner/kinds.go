package planner

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/document"
	"inferplan/planner/flow"
	"inferplan/planner/gear"
	"inferplan/planner/kind"
	"inferplan/planner/pool"
	"inferplan/planner/queue"
)

// methods is the table of methods. A new kind adds one entry.
var methods = []*kind.Method{&pool.Method, &gear.Method, &flow.Method, &queue.Method}

// Kinds lists the kinds of plans that have a method.
func Kinds() []string { return kindsWhere(func(*kind.Method) bool { return true }) }

// MethodOf returns the method of a kind of plans, or nil if there is none.
func MethodOf(kindName string) *kind.Method {
	if i := slices.IndexFunc(methods, func(m *kind.Method) bool { return m.Kind == kindName }); i >= 0 {
		return methods[i]
	}
	return nil
}

// kindsWhere lists the kinds whose method meets a condition.
func kindsWhere(condition func(m *kind.Method) bool) []string {
	var kinds []string
	for _, m := range methods {
		if condition(m) {
			kinds = append(kinds, m.Kind)
		}
	}
	return kinds
}

// kindsWithOption lists the kinds that have an option.
func kindsWithOption(name string) []string {
	return kindsWhere(func(m *kind.Method) bool { return document.NewValues(m.Options()).Has(name) })
}

// Diff returns what changed from plan a to plan b. The parts that all plans have are compared by formats/diff; the
// sections of a kind of plan (pool, gear, flow, queue) by the methods of both plans' kinds.
func Diff(a, b *formats.Plan) *diff.Result {
	return diff.Plans(a, b, func(a, b *formats.Plan, r *diff.Recorder) {
		for _, m := range methods {
			if (m.Kind == a.Kind || m.Kind == b.Kind) && m.Diff != nil {
				m.Diff(a, b, r)
			}
		}
	})
}
