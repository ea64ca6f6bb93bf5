package queue

import (
	"inferplan/formats"
	"inferplan/formats/diff"
)

// diffSections records the differences between the sections of two plans.
func diffSections(a, b *formats.Plan, r *diff.Recorder) { diff.Queues(a, b, r) }
