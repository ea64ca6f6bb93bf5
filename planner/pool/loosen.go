package pool

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenModels returns the models of a workload with longer SLOs or lower floors.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	models := slices.Clone(asked.(formats.WorkloadModels))
	for i := range models {
		m := &models[i]
		m.SLO, m.MinRPS = l.SLOOf(m.Key().String(), m.SLO), l.Rate(m.MinRPS)
	}
	return models
}
