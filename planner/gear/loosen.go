package gear

import (
	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosened asks less of a cascade. It has one SLO, whichever model is named with it.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	out := *asked.(*formats.Cascade)
	if !out.SLO.Latency.IsZero() {
		out.SLO.Latency = l.LongestSLO(out.SLO.Latency)
	}
	out.QPS.Max = l.Rate(out.QPS.Max)
	return &out
}
