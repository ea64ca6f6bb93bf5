package planner

import (
	"inferplan/formats"
	"inferplan/formats/diff"
)

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
