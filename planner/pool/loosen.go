package pool

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosened asks less of models.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	models := slices.Clone(asked.(formats.WorkloadModels))
	for i := range models {
		m := &models[i]
		m.SLO, m.MinRPS = l.SLOOf(m.Key().String(), m.SLO), l.Rate(m.MinRPS)
	}
	return models
}
