package gear

import (
	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenCascade returns the workload with the SLO or the rate that a looser problem has.
func loosened(asked formats.WorkloadSection, l *kind.Looser) formats.WorkloadSection {
	out := *asked.(*formats.Cascade)
	if !out.SLO.Latency.IsZero() {
		out.SLO.Latency = l.LongestSLO(out.SLO.Latency)
	}
	out.QPS.Max = l.Rate(out.QPS.Max)
	return &out
}
