package gear

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// withTraffic returns the cascade of a workload with the shares of the requests by range of rates that a served plan saw.
// If some came at higher rates than planned, there are more ranges of the same width.
func withTraffic(section formats.WorkloadSection, t *kind.Traffic) (formats.WorkloadSection, []string) {
	cascade := *section.(*formats.Cascade)
	plan := formats.GearOf(t.Running)
	if t.Report.Gears == nil || len(t.Report.Gears.ObservedShares) < len(plan.Gears) {
		return section, []string{"rates: the report has no shares by range of rates, as that of plan serve has; those of the workload stay"}
	}
	shares := slices.Clone(t.Report.Gears.ObservedShares)
	for len(shares) > len(plan.Gears) && shares[len(shares)-1] == 0 {
		shares = shares[:len(shares)-1]
	}
	var lines []string
	for i, share := range shares {
		planned := 0.0
		if i < len(plan.Gears) {
			planned = plan.Gears[i].Weight
		}
		lines = append(lines, fmt.Sprintf("range %d of rates: %.3g of the requests, and %.3g when planned", i+1, share, planned))
	}
	cascade.QPS = formats.CascadeQPS{Max: plan.MaxQPS / float64(len(plan.Gears)) * float64(len(shares)), Histogram: shares}
	return &cascade, lines
}
