package cascade

import (
	"inferplan/engine/certainty"
	"inferplan/executor/turn"
)

// Options say how answers of gear plans are judged, and when another plan is due.
type Options struct {
	// Certainty computes how certain a classifier is of an answer from its
	// probabilities; nil: the score that the plan names.
	Certainty certainty.Func
	// DriftLimit is the share of the requests (or of the time, where the plan's
	// weights are that) that may fall into other ranges of rates than planned
	// before a notice asks for another plan; 0: 0.25. DriftWindows is over how
	// many seconds with requests; 0: 600, and the first notice comes after half
	// of them.
	DriftLimit   float64
	DriftWindows int
	// ForwardLimit is the share of the samples that other members of a cascade may
	// answer than planned before a notice asks for other records and another plan; 0: 0.1.
	// ForwardWindows is over how many seconds with answers; 0: 30.
	ForwardLimit   float64
	ForwardWindows int
}

// SetDefaults gives options that are zero their defaults.
func (o *Options) SetDefaults() {
	turn.SetDefault(&o.DriftLimit, 0.25)
	turn.SetDefault(&o.DriftWindows, 600)
	turn.SetDefault(&o.ForwardLimit, 0.1)
	turn.SetDefault(&o.ForwardWindows, 30)
}
