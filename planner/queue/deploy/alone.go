package deploy

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// idleFigure returns the given figure of a request on an idle server: the time to its first token, the time
// per token, or the time of the whole answer.
func alone(of string, in *formats.LLMInstance, prompt, output int32) time.Duration {
	first := in.Iteration.Prefill(max(prompt, 1), int32(budget(in)))
	tokens := max(output-1, 0)
	each := in.Iteration.PerToken(1, float64(prompt)+float64(tokens)/2)
	switch of {
	case formats.OfTTFT:
		return first
	case formats.OfTPOT:
		return each
	}
	return first + time.Duration(tokens)*each
}

// checkIdleSLOs returns an error if even an idle server misses the SLO of some class for more requests than
// may be late. The error names the model and class that miss it by the largest factor.
func reachable(p *Problem) error {
	worst, far, need := -1, 1.0, time.Duration(0)
	for i := range p.Items {
		m, c := &p.Models[p.Items[i].Model], &p.Classes[p.Items[i].Class]

		// The fastest kind on which the model can run.
		least := time.Duration(0)
		for k := range p.Kinds {
			if m.On[k] == nil {
				continue
			}
			if took := aloneAt(c, m.On[k]); least == 0 || took < least {
				least = took
			}
		}
		if by := least.Seconds() / c.SLO.Seconds(); by > far {
			worst, far, need = i, by, least
		}
	}
	if worst < 0 {
		return nil
	}

	// Report the worst class.
	m, c := &p.Models[p.Items[worst].Model], &p.Classes[p.Items[worst].Class]
	return &kind.InfeasibleError{
		Model: formats.ModelClass{Model: m.Name, Class: c.Name}.String(), Constraint: "slo",
		Reason:  fmt.Sprintf("%s of a request of %s %s takes %v on an idle server, more than the SLO of %v, for more than the %s that may be late", figures[c.Of], m.Name, c.Name, need, c.SLO, kind.Percent(1-c.Share)),
		Nearest: kind.Nearest{SLOUS: float64((need + time.Microsecond - 1) / time.Microsecond)},
	}
}

// figureNames has the figures as messages call them.
var figures = map[string]string{formats.OfE2E: "the answer", formats.OfTTFT: "the first token", formats.OfTPOT: "a token"}

// idleQuantile returns the time on an idle server that the required share of a class's requests does not
// exceed.
func aloneAt(c *Class, in *formats.LLMInstance) time.Duration {
	took := make([]time.Duration, len(c.Sample))
	for i, r := range c.Sample {
		took[i] = alone(c.Of, in, r.Prompt, r.Output)
	}
	slices.Sort(took)
	return took[min(int(c.Share*float64(len(took))), len(took)-1)]
}
