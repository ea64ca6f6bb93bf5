package cascade

import "cmp"

// Options say when notices ask for another plan.
type Options struct {
	// DriftLimit is the share of the requests (or of the time, if the plan's weights are shares of time) that may fall into
	// other ranges of rates than planned before a notice asks for another plan. 0 stands for 0.25. DriftWindows is the
	// number of seconds with requests over which it is taken. 0 stands for 600; the first notice comes after half of them.
	DriftLimit   float64
	DriftWindows int
	// ForwardLimit is the share of the samples that may be answered by other models of a cascade than planned before a
	// notice asks for other records and another plan. 0 stands for 0.1. ForwardWindows is the number of seconds with answers
	// over which it is taken. 0 stands for 30.
	ForwardLimit   float64
	ForwardWindows int
}

// SetDefaults sets options that are zero to their defaults.
func (o *Options) SetDefaults() {
	o.DriftLimit = cmp.Or(o.DriftLimit, 0.25)
	o.DriftWindows = cmp.Or(o.DriftWindows, 600)
	o.ForwardLimit = cmp.Or(o.ForwardLimit, 0.1)
	o.ForwardWindows = cmp.Or(o.ForwardWindows, 30)
}
