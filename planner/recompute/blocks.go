package recompute

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// BlockChange is a block whose cost has changed.
type BlockChange struct {
	Model  string          `json:"model"`
	Block  int             `json:"block"`
	Name   string          `json:"name"`
	Device string          `json:"device"`
	Share  int             `json:"share"`
	Batch  int             `json:"batch"`
	OldUS  document.Micros `json:"old_us"`
	NewUS  document.Micros `json:"new_us"`
	Change float64         `json:"change"` // relative
	Stage  string          `json:"where"`  // stage of the plan that runs it
}

// String returns the change on one line.
func (b BlockChange) String() string {
	share := ""
	if b.Share > 1 {
		share = fmt.Sprintf(", share 1/%d", b.Share)
	}
	return fmt.Sprintf("block %d (%s) of %s on %s%s at batch %d: %s us, was %s us (%+.1f %%), in %s",
		b.Block, b.Name, b.Model, b.Device, share, b.Batch, b.NewUS, b.OldUS, 100*b.Change, b.Stage)
}

// BlockChanges compares the times of the blocks that a plan runs today with those when it was made: by the promised profile if there is
// one, else by the plan's own block_us. Only changes beyond the half width of the new measurement (half of its 95 % interval) count, each
// once though several stages may run the block. The largest slowdown comes first.
func BlockChanges(plan *formats.Plan, promised, current *formats.Profile) []BlockChange {
	var changes []BlockChange
	compared := map[string]bool{}
	for s := range plan.Stages() {
		deployed := s.Deployed
		model := current.FindModel(deployed.Model)
		if model == nil || len(model.Blocks) != deployed.NumBlocks {
			continue
		}
		var oldModel *formats.ProfileModel
		if promised != nil {
			oldModel = promised.FindModel(deployed.Model)
		}
		changes = append(changes, stageChanges(model, oldModel, &s, compared)...)
	}
	slices.SortStableFunc(changes, func(a, b BlockChange) int { return cmp.Compare(b.Change, a.Change) })
	return changes
}

// stageChanges returns which blocks of stage s now take another time than when the plan was made. model is the model in today's profile.
// The old times are those of oldModel, the model in the promised profile; if it is nil or has other blocks, they are the plan's. compared
// holds, by a text of block and place, the blocks that earlier stages have reported: they are left out, and the new ones are added. Without
// a comparable measurement it returns nil.
func stageChanges(model, oldModel *formats.ProfileModel, s *formats.PlacedStage, compared map[string]bool) []BlockChange {
	batch := s.Pipeline.Batch
	measurement := MeasurementFor(model, s.Device, s.Share, batch)
	if measurement == nil || len(measurement.Blocks) != len(model.Blocks) || s.Blocks[1] > len(model.Blocks) {
		return nil
	}

	// The old times come from the promised profile, if it has the same blocks.
	oldTimes := s.BlockUS
	if oldModel != nil && len(oldModel.Blocks) == len(model.Blocks) {
		if oldMeasurement := MeasurementFor(oldModel, s.Device, s.Share, batch); oldMeasurement != nil && len(oldMeasurement.Blocks) == len(model.Blocks) {
			oldTimes = nil
			for _, l := range oldMeasurement.Blocks[s.Blocks[0]:s.Blocks[1]] {
				oldTimes = append(oldTimes, l.WallUS)
			}
		}
	}
	if len(oldTimes) != s.Blocks[1]-s.Blocks[0] {
		return nil
	}

	// Keep the changes beyond the half width.
	var changes []BlockChange
	for i, oldTime := range oldTimes {
		// A change counts if it exceeds the uncertainty of the new time, in either direction.
		block := s.Blocks[0] + i
		today := measurement.Blocks[block]
		key := fmt.Sprint(model.Model, " ", block, " ", s.Device, " ", s.Share, " ", batch)
		difference := today.WallUS - oldTime
		if oldTime <= 0 || difference == 0 || max(difference, -difference) <= today.HalfWidthUS || compared[key] {
			continue
		}
		compared[key] = true
		changes = append(changes, BlockChange{
			Model: model.Model, Block: block, Name: model.Blocks[block].Name, Device: s.Device, Share: s.Share, Batch: batch,
			OldUS: oldTime, NewUS: today.WallUS, Change: float64(today.WallUS)/float64(oldTime) - 1, Stage: s.Path(),
		})
	}
	return changes
}
