package pool

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenModels returns the models of a workload with longer SLOs or lower floors.
func loosenModels(requested formats.WorkloadSection, l *kind.Relaxation) formats.WorkloadSection {
	models := slices.Clone(requested.(formats.WorkloadModels))
	for i := range models {
		m := &models[i]
		m.SLO, m.MinRPS = l.SLOOf(m.Key().String(), m.SLO), l.ScaledRate(m.MinRPS)
	}
	return models
}
