package pool

import "inferplan/planner/stages"

// Rounding is the rule by which shares of devices are rounded up to whole devices.
type Rounding int8

const (
	// Slot rounds up to whole devices per model, stage position and device kind. Only pipelines of one model
	// share a device, and only at the same position.
	Slot Rounding = iota
	// Fractional lets any stages share a device. Only the sum of shares is limited.
	Fractional
)

// Problem says what to plan, as numbers.
type Problem struct {
	stages.Problem
	Rounding    Rounding
	Fluid       bool    // if set, waits on time-shared devices are ignored
	MarginShare float64 // part of each SLO that is kept back; every Model.Margin is kind.Margin(SLO, MarginShare)
	// Margins holds the share of each model. If it is nil, every model has MarginShare.
	Margins []float64
}

// marginShareOf returns the part of a model's SLO that is kept back as its margin: its own, or that of all
// models.
func marginShareOf(p *Problem, model int) float64 {
	if p.Margins == nil {
		return p.MarginShare
	}
	return p.Margins[model]
}
