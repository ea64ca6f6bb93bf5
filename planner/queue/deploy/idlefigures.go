package deploy

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// idleFigure returns the figure by which a class is judged for a request on a server that runs nothing else: the time to its first token,
// the time per token, or the time of the whole answer (the default). prompt and output are in tokens.
func idleFigure(figure string, instance *formats.LLMInstance, prompt, output int32) time.Duration {
	prefill := instance.Iteration.PrefillTime(max(prompt, 1), int32(tokenBudget(instance)))
	tokens := max(output-1, 0)
	perToken := instance.Iteration.TokenTime(1, float64(prompt)+float64(tokens)/2)
	switch figure {
	case formats.FigureTTFT:
		return prefill
	case formats.FigureTPOT:
		return perToken
	}
	return prefill + time.Duration(tokens)*perToken
}

// checkIdleSLOs returns an error if even an idle server, of the kind that is fastest for the model, misses the SLO of some class for more
// requests than may be late: then no number of servers helps. The error names the model and class that miss it by the largest factor, and
// the shortest SLO that could be kept.
func checkIdleSLOs(p *Problem) error {
	worstItem, maxRatio, neededTime := -1, 1.0, time.Duration(0)
	for i := range p.Items {
		m, c := &p.Models[p.Items[i].Model], &p.Classes[p.Items[i].Class]

		// The fastest kind on which the model can run.
		fastest := time.Duration(0)
		for k := range p.Kinds {
			if m.ByKind[k] == nil {
				continue
			}
			if idleTime := idleQuantile(c, m.ByKind[k]); fastest == 0 || idleTime < fastest {
				fastest = idleTime
			}
		}
		if ratio := fastest.Seconds() / c.SLO.Seconds(); ratio > maxRatio {
			worstItem, maxRatio, neededTime = i, ratio, fastest
		}
	}
	if worstItem < 0 {
		return nil
	}

	// Report the worst class.
	m, c := &p.Models[p.Items[worstItem].Model], &p.Classes[p.Items[worstItem].Class]
	return &kind.InfeasibleError{
		Model: formats.ModelClass{Model: m.Name, Class: c.Name}.String(), Constraint: "slo",
		Reason:  fmt.Sprintf("%s of a request of %s %s takes %v on an idle server, more than the SLO of %v, for more than the %s that may be late", figureNames[c.Figure], m.Name, c.Name, neededTime, c.SLO, kind.FormatPercent(1-c.RequiredShare)),
		Nearest: kind.NearestFeasible{SLOUS: float64((neededTime + time.Microsecond - 1) / time.Microsecond)},
	}
}

// figureNames has the figures as messages call them.
var figureNames = map[string]string{formats.FigureE2E: "the answer", formats.FigureTTFT: "the first token", formats.FigureTPOT: "a token"}

// idleQuantile returns the time on an idle server that the required share of a class's requests does not
// exceed.
func idleQuantile(c *Class, instance *formats.LLMInstance) time.Duration {
	idleTimes := lists.Filled(len(c.Sample), func(i int) time.Duration {
		return idleFigure(c.Figure, instance, c.Sample[i].Prompt, c.Sample[i].Output)
	})
	slices.Sort(idleTimes)
	return idleTimes[min(int(c.RequiredShare*float64(len(idleTimes))), len(idleTimes)-1)]
}
