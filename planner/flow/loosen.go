package flow

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenApplications returns the applications with the longer SLOs and lower rates of l.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	apps := slices.Clone(asked.(formats.Applications))
	for i := range apps {
		a := &apps[i]
		a.SLO, a.RPS = l.SLOOf(a.Name, a.SLO), l.Rate(a.RPS)
	}
	return apps
}
