package recompute

import (
	"math"
	"time"

	"inferplan/formats"
)

// Work is what all stages of a plan take together by a profile, each once at its
// planned batch. Stages that the profile does not know are left out.
func Work(plan *formats.Plan, profile *formats.Profile) (sum time.Duration) {
	eachStage(plan, profile, func(_ int, pm *formats.ProfileModel, ms *formats.Measurement, s *formats.Stage) {
		sum += Inference(pm, ms, s.Blocks[0], s.Blocks[1])
	})
	return sum
}

// HalfWidth is by how much the work of a model of the plan may be off, by the half
// widths of the medians of its blocks: of the model that is known least well,
// relative. Blocks are measured apart, so their squares add up.
func HalfWidth(plan *formats.Plan, profile *formats.Profile) float64 {
	work, squares := make([]float64, len(plan.Deployment)), make([]float64, len(plan.Deployment))
	eachStage(plan, profile, func(i int, _ *formats.ProfileModel, ms *formats.Measurement, s *formats.Stage) {
		for _, l := range ms.Blocks[s.Blocks[0]:s.Blocks[1]] {
			work[i] += US(l.WallUS.D())
			squares[i] += US(l.HalfWidthUS.D()) * US(l.HalfWidthUS.D())
		}
	})
	worst := 0.0
	for i := range work {
		if work[i] > 0 {
			worst = max(worst, math.Sqrt(squares[i])/work[i])
		}
	}
	return worst
}

// eachStage goes through the stages of a plan that a profile has measured.
func eachStage(plan *formats.Plan, profile *formats.Profile, visit func(model int, pm *formats.ProfileModel, ms *formats.Measurement, s *formats.Stage)) {
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		pm := profileModel(profile, d.Model)
		if pm == nil || len(pm.Blocks) != d.NumBlocks {
			continue
		}
		for j := range d.Pipelines {
			for k := range d.Pipelines[j].Stages {
				s := &d.Pipelines[j].Stages[k]
				if ms := Measured(pm, s.Device, s.Share, d.Pipelines[j].Batch); ms != nil && len(ms.Blocks) == d.NumBlocks {
					visit(i, pm, ms, s)
				}
			}
		}
	}
}
