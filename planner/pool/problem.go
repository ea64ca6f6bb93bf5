package pool

import "inferplan/planner/stages"

// Rounding is the rule by which shares of devices become whole devices.
type Rounding int8

const (
	// Slot rounds up to whole devices per model, stage position and device
	// kind: pipelines of one model may share a device at one position only.
	Slot Rounding = iota
	// Fractional lets any stages share a device: only the sum is limited.
	Fractional
)

// Problem is what is to be planned, as numbers.
type Problem struct {
	stages.Problem
	Rounding    Rounding
	Fluid       bool    // waits on time-shared devices are left out
	MarginShare float64 // of each SLO; every Model.Margin is kind.Margin(SLO, MarginShare)
	// Margins are the shares of the models, in their order, where each has its own;
	// nil: all have MarginShare.
	Margins []float64
}

// marginShare is the share of a model's SLO that is kept back.
func marginShare(p *Problem, model int) float64 {
	if p.Margins == nil {
		return p.MarginShare
	}
	return p.Margins[model]
}
