package gear

import (
	"inferplan/formats"
	"inferplan/planner/kind"
)

// loosenCascade returns the workload with the SLO or the rate that a looser problem has.
func loosenCascade(requested formats.WorkloadSection, looser *kind.Relaxation) formats.WorkloadSection {
	looserCascade := *requested.(*formats.Cascade)
	if !looserCascade.SLO.Latency.IsZero() {
		looserCascade.SLO.Latency = looser.LongestSLO(looserCascade.SLO.Latency)
	}
	looserCascade.QPS.Max = looser.ScaledRate(looserCascade.QPS.Max)
	return &looserCascade
}
