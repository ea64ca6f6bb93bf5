package planner

import (
	"fmt"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// minWarnedExcess is the share from which on a rate that may be too high gets a warning.
const looseRate = 0.1

// looseRateWarnings returns warnings about models whose promised rates rest on loose
// measurements: by how much a rate is too high if its stages take as long as the profile
// leaves open. Two things leave it open: the half widths of the medians, and a whole model that
// took longer than the sum of its blocks. The latter shows that something else had the
// processor, because blocks add work and take none away.
func loosePromises(plan *formats.Plan, profile *formats.Profile) (out []string) {
	if profile == nil {
		return nil
	}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		m := profile.Find(d.Model)
		if m == nil || len(m.Blocks) != d.NumBlocks {
			continue // the profile has other blocks than the plan
		}

		// Find the stage whose rate may be off most.
		worst, why := 0.0, ""
		for j := range d.Pipelines {
			for k := range d.Pipelines[j].Stages {
				s := &d.Pipelines[j].Stages[k]
				x := recompute.Measured(m, s.Device, s.Share, d.Pipelines[j].Batch)
				if x == nil {
					continue
				}
				if off, text := tooFast(x, s.Blocks); off > worst {
					worst, why = off, fmt.Sprintf("%s at batch %d %s", s.Device, x.Batch, text)
				}
			}
		}
		if worst > looseRate {
			out = append(out, fmt.Sprintf("%s: %.4g rps, ± %.0f %%: on %s", d.Model, d.RPS(), 100*worst, why))
		}
	}
	return out
}

// rateExcess returns the share by which a rate may be too high that rests on a measurement of
// blocks, and the reason.
func tooFast(x *formats.Measurement, blocks [2]int) (float64, string) {
	var stage, half, chain float64
	for i, b := range x.Blocks {
		chain += float64(b.WallUS)
		if i >= blocks[0] && i < blocks[1] {
			stage += float64(b.WallUS)
			half += float64(b.HalfWidthUS)
		}
	}
	if !(stage > 0) {
		return 0, ""
	}

	// The whole model took longer than its blocks.
	stretch, why := 1.0, ""
	if x.Whole != nil && float64(x.Whole.WallUS) > chain {
		stretch = float64(x.Whole.WallUS) / chain
		why = fmt.Sprintf("the whole model took %.2f times the sum of its blocks", stretch)
	}

	// The medians are inexact.
	if half > 0 {
		if why != "" {
			why += ", and "
		}
		why += fmt.Sprintf("the medians of the blocks are known to ± %.0f %%", 100*half/stage)
	}
	return 1 - 1/(stretch*(1+half/stage)), why
}
