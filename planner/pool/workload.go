package pool

import (
	"math"
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

// withTraffic returns the models of a workload with the weights that a served plan was asked for. With throughput as
// the objective, weights are shares; with others, the plan carries the rates themselves: weight times min-load.
func withTraffic(section formats.WorkloadSection, t *kind.Traffic) (formats.WorkloadSection, []string) {
	models := slices.Clone(section.(formats.WorkloadModels))
	weights, rates := make([]float64, len(models)), make([]float64, len(models))
	var lines []string
	for i := range models {
		weights[i], rates[i] = models[i].Weight, math.NaN()
		rps, ok := t.RateOf(models[i].Key())
		if !ok {
			lines = append(lines, models[i].Key().String()+": not in the report; its weight stays")
			continue
		}
		rates[i] = rps
		lines = append(lines, t.RateLine(models[i].Key(), rps))
	}
	shares := kind.Weights(weights, rates)
	perWeight := t.Running.Options.Number("min-load")
	for i := range models {
		models[i].Weight = shares[i]
		if perWeight > 0 && rates[i] > 0 {
			models[i].Weight = rates[i] / perWeight
		}
	}
	return models, lines
}

// withoutReserves returns a workload whose models keep nothing back of their own.
func withoutReserves(stated *formats.Workload) *formats.Workload {
	requested := *stated
	models := slices.Clone(formats.ModelsOf(stated))
	for i := range models {
		models[i].Margin, models[i].Utilisation = nil, 0
	}
	requested.Section = models
	return &requested
}
