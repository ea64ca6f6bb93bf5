package flow

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenApplications returns the applications of a workload with the longer SLOs and the lower rates that l names. The driver calls it, as
// the RelaxWorkload of Method, to plan the nearest problem that has a plan.
func loosenApplications(section formats.WorkloadSection, l *kind.Relaxation) formats.WorkloadSection {
	apps := slices.Clone(section.(formats.Applications))
	for i := range apps {
		a := &apps[i]
		a.SLO, a.RPS = l.SLOOf(a.Name, a.SLO), l.ScaledRate(a.RPS)
	}
	return apps
}
