package flow

import (
	"math"
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

// withTraffic returns the applications of a workload with the rates that a served plan was asked for: as weights, and as
// the rate to be carried where a workload names one.
func withTraffic(section formats.WorkloadSection, t *kind.Traffic) (formats.WorkloadSection, []string) {
	list := slices.Clone(section.(formats.Applications))
	weights, rates := make([]float64, len(list)), make([]float64, len(list))
	var lines []string
	for i := range list {
		weights[i], rates[i] = list[i].Weight, math.NaN()
		rps, ok := t.ModelRate(list[i].Name)
		if !ok {
			lines = append(lines, list[i].Name+": not in the report; its weight stays")
			continue
		}
		rates[i] = rps
		lines = append(lines, t.RateLine(formats.ModelClass{Model: list[i].Name}, rps))
	}
	shares := kind.Weights(weights, rates)
	for i := range list {
		list[i].Weight = shares[i]
		if list[i].RPS > 0 && rates[i] > 0 {
			list[i].RPS = rates[i]
		}
	}
	return list, lines
}
