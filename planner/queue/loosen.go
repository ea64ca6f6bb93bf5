package queue

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// loosenClasses returns the workload with the longer SLOs and lower rates of l, when a workload without a plan is
// loosened to find what would be possible. A class has one SLO for all of its models: the longest that l has for
// any of them.
func loosenClasses(section formats.WorkloadSection, l *kind.Relaxation) formats.WorkloadSection {
	looser := *section.(*formats.LLM)
	looser.Classes = slices.Clone(looser.Classes)
	for i := range looser.Classes {
		c := &looser.Classes[i]
		slo := l.SLOOf("", c.SLO)
		models, _ := looser.ModelShares(i)
		for _, m := range models {
			if modelSLO, ok := l.SLOs[formats.ModelClass{Model: m, Class: c.Class}.String()]; ok && (slo.Factor > 0 || modelSLO > slo.Duration) {
				slo = document.SLO{Duration: modelSLO}
			}
		}
		c.SLO, c.RPS = slo, l.ScaledRate(c.RPS)
	}
	return &looser
}
