package flow

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosened asks less of applications.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	apps := slices.Clone(asked.(formats.Applications))
	for i := range apps {
		a := &apps[i]
		a.SLO, a.RPS = l.SLOOf(a.Name, a.SLO), l.Rate(a.RPS)
	}
	return apps
}
