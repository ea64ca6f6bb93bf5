package queue

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// loosenClasses returns a copy of the workload's part for language models with the longer SLOs and lower rates of l. The planner calls it
// when there is no plan, to find the nearest workload that has one. A class has one SLO for all of its models: the longest that l has for
// any of them.
func loosenClasses(section formats.WorkloadSection, l *kind.Relaxation) formats.WorkloadSection {
	looser := *section.(*formats.LLM)
	looser.Classes = slices.Clone(looser.Classes)
	for i := range looser.Classes {
		class := &looser.Classes[i]

		// An SLO that is a multiple (Factor above 0) has no time to compare, so the model's time replaces it.
		slo := l.SLOOf("", class.SLO)
		models, _ := looser.ModelShares(i)
		for _, m := range models {
			if modelSLO, ok := l.SLOs[formats.ModelClass{Model: m, Class: class.Class}.String()]; ok && (slo.Factor > 0 || modelSLO > slo.Duration) {
				slo = document.SLO{Duration: modelSLO}
			}
		}
		class.SLO, class.RPS = slo, l.ScaledRate(class.RPS)
	}
	return &looser
}

// withTraffic returns the classes of a workload with the rates that a served plan was asked for, and their shares by
// model.
func withTraffic(section formats.WorkloadSection, t *kind.Traffic) (formats.WorkloadSection, []string) {
	llm := *section.(*formats.LLM)
	llm.Classes = slices.Clone(llm.Classes)
	var lines []string
	for c := range llm.Classes {
		class := &llm.Classes[c]
		models, _ := llm.ModelShares(c)
		sum, rates := 0.0, make([]float64, len(models))
		for i, model := range models {
			key := formats.ModelClass{Model: model, Class: class.Class}
			rps, ok := t.RateOf(key)
			if !ok {
				continue
			}
			rates[i], sum = rps, sum+rps
			lines = append(lines, t.RateLine(key, rps))
		}
		if sum > 0 {
			class.Models, class.RPS, class.Shares = models, sum, rates
		}
	}
	return &llm, lines
}
