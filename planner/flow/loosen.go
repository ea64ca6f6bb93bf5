package flow

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenApplications returns the applications with the longer SLOs and lower rates of l.
func loosenApplications(section formats.WorkloadSection, l *kind.Relaxation) formats.WorkloadSection {
	apps := slices.Clone(section.(formats.Applications))
	for i := range apps {
		a := &apps[i]
		a.SLO, a.RPS = l.SLOOf(a.Name, a.SLO), l.ScaledRate(a.RPS)
	}
	return apps
}
