package planner

import (
	"inferplan/formats"
	"inferplan/formats/diff"
)

// Diff tells what moved from plan a to plan b, with what moved between their
// sections as the methods of their kinds tell it.
func Diff(a, b *formats.Plan) *diff.Result {
	return diff.Plans(a, b, func(a, b *formats.Plan, r *diff.Recorder) {
		for _, m := range methods {
			if (m.Kind == a.Kind || m.Kind == b.Kind) && m.Diff != nil {
				m.Diff(a, b, r)
			}
		}
	})
}
