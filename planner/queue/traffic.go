package queue

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

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
			rps, ok := t.RateOf(formats.ModelClass{Model: model, Class: class.Class})
			if !ok {
				continue
			}
			planned := 0.0
			for _, q := range formats.QueueOf(t.Running).Classes {
				if q.Model == model && q.Class == class.Class {
					planned = q.RPS
				}
			}
			rates[i], sum = rps, sum+rps
			lines = append(lines, kind.RateLine(formats.ModelClass{Model: model, Class: class.Class}.String(), rps, planned))
		}
		if sum > 0 {
			class.Models, class.RPS, class.Shares = models, sum, rates
		}
	}
	return &llm, lines
}
