package recompute

import (
	"math"
	"time"

	"inferplan/formats"
)

// TotalWork returns the sum of the times of all stages of a plan by a profile, each once at its planned
// batch size. Stages that the profile does not have are left out.
func TotalWork(plan *formats.Plan, profile *formats.Profile) (sum time.Duration) {
	visitMeasuredStages(plan, profile, func(pm *formats.ProfileModel, ms *formats.Measurement, s *formats.PlacedStage) {
		sum += RangeTime(pm, ms, s.Blocks[0], s.Blocks[1])
	})
	return sum
}

// RelativeHalfWidth returns half the width of the 95 % interval of the work of a model (the sum of its stages' times), as a part of the
// work. Of the models of the plan it takes the one whose work is known least exactly. Blocks are measured separately, so the squares of
// the half widths of their times add up.
func RelativeHalfWidth(plan *formats.Plan, profile *formats.Profile) float64 {
	work, squares := map[*formats.Deployed]float64{}, map[*formats.Deployed]float64{}
	visitMeasuredStages(plan, profile, func(_ *formats.ProfileModel, ms *formats.Measurement, s *formats.PlacedStage) {
		// A stage of the whole model was measured in one run, which has an interval of its own.
		pieces := ms.Blocks[s.Blocks[0]:s.Blocks[1]]
		if ms.WholeModel != nil && len(pieces) == len(ms.Blocks) {
			pieces = []formats.Latency{*ms.WholeModel}
		}
		for _, l := range pieces {
			work[s.Deployed] += Micros(l.WallUS.D())
			squares[s.Deployed] += Micros(l.HalfWidthUS.D()) * Micros(l.HalfWidthUS.D())
		}
	})
	maxWidth := 0.0
	for d := range work {
		if work[d] > 0 {
			maxWidth = max(maxWidth, math.Sqrt(squares[d])/work[d])
		}
	}
	return maxWidth
}

// visitMeasuredStages calls visit for each stage of a plan that a profile has measured, with the model in the profile and its measurement
// at the stage's batch. Stages of models that the profile lacks or cuts into other blocks are left out.
func visitMeasuredStages(plan *formats.Plan, profile *formats.Profile, visit func(pm *formats.ProfileModel, ms *formats.Measurement, s *formats.PlacedStage)) {
	for s := range plan.Stages() {
		pm := profile.FindModel(s.Deployed.Model)
		if pm == nil || len(pm.Blocks) != s.Deployed.NumBlocks {
			continue
		}
		if ms := MeasurementFor(pm, s.Device, s.Share, s.Pipeline.Batch); ms != nil && len(ms.Blocks) == s.Deployed.NumBlocks {
			visit(pm, ms, &s)
		}
	}
}
