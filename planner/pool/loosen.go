package pool

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenModels returns a copy of the models of a workload with the longer SLOs and lower floors (the rates that models
// must have at least) of a relaxation. The driver calls it to search for the nearest feasible problem.
func loosenModels(requested formats.WorkloadSection, l *kind.Relaxation) formats.WorkloadSection {
	models := slices.Clone(requested.(formats.WorkloadModels))
	for i := range models {
		m := &models[i]
		m.SLO, m.MinRPS = l.SLOOf(m.Key().String(), m.SLO), l.ScaledRate(m.MinRPS)
	}
	return models
}
