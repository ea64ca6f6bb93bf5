package planner

import (
	"fmt"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// minWarnedExcess is the share from which on a rate that may be too high gets a warning.
const minWarnedExcess = 0.1

// looseRateWarnings returns warnings about the models of a plan whose promised rates rest on inexact measurements:
// by which share a rate may be too high if its stages take as long as the profile allows. Measurements are inexact
// if the medians of the blocks have wide confidence intervals, or if the whole model took longer than the sum of its
// blocks. Blocks measured apart add work and take none away, so in the latter case something else had the processor.
// A model gets a warning if the share is above minWarnedExcess. Without a profile there are none.
func looseRateWarnings(plan *formats.Plan, profile *formats.Profile) (warnings []string) {
	if profile == nil {
		return nil
	}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		m := profile.FindModel(d.Model)
		if m == nil || len(m.Blocks) != d.NumBlocks {
			continue // the profile has other blocks than the plan
		}

		// Find the stage whose rate may be off most.
		maxExcess, reason := 0.0, ""
		for j := range d.Pipelines {
			for k := range d.Pipelines[j].Stages {
				s := &d.Pipelines[j].Stages[k]
				x := recompute.MeasurementFor(m, s.Device, s.Share, d.Pipelines[j].Batch)
				if x == nil {
					continue
				}
				if excess, text := rateExcess(x, s.Blocks); excess > maxExcess {
					maxExcess, reason = excess, fmt.Sprintf("%s at batch %d %s", s.Device, x.Batch, text)
				}
			}
		}
		if maxExcess > minWarnedExcess {
			warnings = append(warnings, fmt.Sprintf("%s: %.4g rps, ± %.0f %%: on %s", d.Model, d.RPS(), 100*maxExcess, reason))
		}
	}
	return warnings
}

// rateExcess returns the share of a rate by which it may be too high, and the reason as text. The rate is that of a
// stage with blocks blocks[0] to blocks[1]-1, computed from measurement x of the whole model's blocks. It is 0
// without a reason if the measurement is exact.
func rateExcess(x *formats.Measurement, blocks [2]int) (float64, string) {
	// The times in microseconds: of the stage, of the uncertainty of its medians, and of all blocks.
	var stage, halfWidths, blockSum float64
	for i, b := range x.Blocks {
		blockSum += float64(b.WallUS)
		if i >= blocks[0] && i < blocks[1] {
			stage += float64(b.WallUS)
			halfWidths += float64(b.HalfWidthUS)
		}
	}
	if !(stage > 0) {
		return 0, ""
	}

	// The whole model took longer than its blocks.
	stretch, reason := 1.0, ""
	if x.WholeModel != nil && float64(x.WholeModel.WallUS) > blockSum {
		stretch = float64(x.WholeModel.WallUS) / blockSum
		reason = fmt.Sprintf("the whole model took %.2f times the sum of its blocks", stretch)
	}

	// The medians are inexact: the stage may take longer by the half widths of their confidence intervals.
	if halfWidths > 0 {
		if reason != "" {
			reason += ", and "
		}
		reason += fmt.Sprintf("the medians of the blocks are known to ± %.0f %%", 100*halfWidths/stage)
	}
	// A stage that takes f times as long carries 1/f of the rate.
	longer := stretch * (1 + halfWidths/stage)
	return 1 - 1/longer, reason
}
