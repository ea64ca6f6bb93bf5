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
