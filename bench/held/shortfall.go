package held

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Shortfall says by which part of its bound a plan of pools states less, and why. The causes add up to Gap.
type Shortfall struct {
	Gap      float64
	Devices  float64 // by which the devices carry less than the bound, without queueing
	Links    float64 // by which the plan would hold more if transfers took no time
	Filling  float64 // by which it then would hold more if a batch that is not full cost its samples' part of a full one
	Queueing float64 // by which it still holds less than its devices carry
	Unstated float64 // by which it holds more than it states
}

// ErrNoBound is of a plan without a bound, or whose rate no test confirms.
var ErrNoBound = errors.New("the plan states no bound")

// Shortfall takes the causes out of a plan one after the other, and looks what it then holds.
func (h *Tester) Shortfall(ctx context.Context, plan *formats.Plan) (*Shortfall, error) {
	stated, bound, fluid := plan.Objective.Value, plan.Objective.Bound, plan.Objective.Fluid
	if bound == nil || fluid == nil {
		return nil, ErrNoBound
	}
	// 1. What holds as planned, without transfers, and without transfers and the cost of batches that are not full.
	withoutLinks := withStages(plan, func(s *formats.Stage) {
		if s.Cut != nil {
			cut := *s.Cut
			cut.TransferUS = make([]document.Micros, len(cut.TransferUS))
			s.Cut = &cut
		}
	})
	proportional := withStages(withoutLinks, func(s *formats.Stage) {
		s.InferUS, s.MeanUS, s.InferRangeUS = proportions(s.InferUS), proportions(s.MeanUS), nil
	})
	var holds [3]float64
	for i, variant := range []*formats.Plan{plan, withoutLinks, proportional} {
		var err error
		if holds[i], err = h.Rate(ctx, variant); err != nil {
			return nil, fmt.Errorf("variant %d of the plan: %w", i, err)
		}
	}
	// 2. The difference that each cause makes.
	return &Shortfall{
		Gap: 1 - stated / *bound, Devices: 1 - *fluid / *bound,
		Links: (holds[1] - holds[0]) / *bound, Filling: (holds[2] - holds[1]) / *bound,
		Queueing: (*fluid - holds[2]) / *bound, Unstated: (holds[0] - stated) / *bound,
	}, nil
}

// withStages returns a copy of a plan whose stages were changed.
func withStages(plan *formats.Plan, change func(s *formats.Stage)) *formats.Plan {
	out := *plan
	out.Deployment = slices.Clone(plan.Deployment)
	for m := range out.Deployment {
		model := &out.Deployment[m]
		model.Pipelines = slices.Clone(model.Pipelines)
		for i := range model.Pipelines {
			pipeline := &model.Pipelines[i]
			pipeline.Stages = slices.Clone(pipeline.Stages)
			for s := range pipeline.Stages {
				change(&pipeline.Stages[s])
			}
		}
	}
	return &out
}

// proportions returns the times of batches that cost their samples' part of the largest, at least 1 ns; of no times, it
// returns nil.
func proportions(times []document.Micros) []document.Micros {
	if times == nil {
		return nil
	}
	out := make([]document.Micros, len(times))
	for i := range times {
		out[i] = max(1, times[len(times)-1]*document.Micros(i+1)/document.Micros(len(times)))
	}
	return out
}
