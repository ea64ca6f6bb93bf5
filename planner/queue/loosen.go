package queue

import (
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosened asks less of classes. A class has one SLO for all its models.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	out := *asked.(*formats.LLM)
	out.Classes = slices.Clone(out.Classes)
	for i := range out.Classes {
		c := &out.Classes[i]
		of := kind.Looser{SLO: l.SLO, SLOs: map[string]time.Duration{}}
		for _, model := range append(slices.Clone(out.Models), c.Models...) {
			name := formats.ModelClass{Model: model, Class: c.Class}.String()
			if own, ok := l.SLOs[name]; ok {
				of.SLOs[name] = own
			}
		}
		c.SLO, c.RPS = of.LongestSLO(c.SLO), l.Rate(c.RPS)
	}
	return &out
}
