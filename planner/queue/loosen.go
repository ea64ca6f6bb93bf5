package queue

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// loosenClasses returns the workload with the longer SLOs and lower rates of l. A class has one SLO for all
// of its models: the longest that l has for any of them.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	out := *asked.(*formats.LLM)
	out.Classes = slices.Clone(out.Classes)
	for i := range out.Classes {
		c := &out.Classes[i]
		slo := l.SLOOf("", c.SLO)
		models, _ := out.Asks(i)
		for _, m := range models {
			if own, ok := l.SLOs[formats.ModelClass{Model: m, Class: c.Class}.String()]; ok && (slo.Times > 0 || own > slo.Duration) {
				slo = document.SLO{Duration: own}
			}
		}
		c.SLO, c.RPS = slo, l.Rate(c.RPS)
	}
	return &out
}
