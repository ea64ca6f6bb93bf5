package flow

import (
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

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
		planned := 0.0
		for _, a := range formats.FlowOf(t.Running).Applications {
			if a.Model == list[i].Name {
				planned = a.RPS
			}
		}
		lines = append(lines, kind.RateLine(list[i].Name, rps, planned))
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
