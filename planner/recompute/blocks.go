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
	Where  string          `json:"where"`  // stage of the plan that runs it
}

// String returns the change on one line.
func (b BlockChange) String() string {
	share := ""
	if b.Share > 1 {
		share = fmt.Sprintf(", share 1/%d", b.Share)
	}
	return fmt.Sprintf("block %d (%s) of %s on %s%s at batch %d: %s us, was %s us (%+.1f %%), in %s",
		b.Block, b.Name, b.Model, b.Device, share, b.Batch, b.NewUS, b.OldUS, 100*b.Change, b.Where)
}

// BlockChanges compares the costs of the blocks that a plan runs today with those when it was made: by
// the promised profile if there is one, else by the plan's own block_us. Only changes beyond the half
// width of the new measurement count. The largest slowdown comes first.
func BlockChanges(plan *formats.Plan, old, now *formats.Profile) []BlockChange {
	var out []BlockChange
	seen := map[string]bool{}
	for s := range plan.Stages() {
		m := s.Deployed
		pm := now.Find(m.Model)
		if pm == nil || len(pm.Blocks) != m.NumBlocks {
			continue
		}
		var om *formats.ProfileModel
		if old != nil {
			om = old.Find(m.Model)
		}
		out = append(out, stageChanges(pm, om, &s, seen)...)
	}
	slices.SortStableFunc(out, func(a, b BlockChange) int { return cmp.Compare(b.Change, a.Change) })
	return out
}

// stageChanges compares the blocks of a stage, except for those in compared.
func stageChanges(pm, om *formats.ProfileModel, s *formats.PlacedStage, seen map[string]bool) []BlockChange {
	batch := s.Pipeline.Batch
	ms := Measured(pm, s.Device, s.Share, batch)
	if ms == nil || len(ms.Blocks) != len(pm.Blocks) || s.Blocks[1] > len(pm.Blocks) {
		return nil
	}

	// The old times come from the promised profile, if it has the same blocks.
	was := s.BlockUS
	if om != nil && len(om.Blocks) == len(pm.Blocks) {
		if oms := Measured(om, s.Device, s.Share, batch); oms != nil && len(oms.Blocks) == len(pm.Blocks) {
			was = nil
			for _, l := range oms.Blocks[s.Blocks[0]:s.Blocks[1]] {
				was = append(was, l.WallUS)
			}
		}
	}
	if len(was) != s.Blocks[1]-s.Blocks[0] {
		return nil
	}

	// Keep the changes beyond the half width.
	var out []BlockChange
	for i, o := range was {
		b := s.Blocks[0] + i
		n := ms.Blocks[b]
		key := fmt.Sprint(pm.Model, " ", b, " ", s.Device, " ", s.Share, " ", batch)
		d := n.WallUS - o
		if o <= 0 || d == 0 || max(d, -d) <= n.HalfWidthUS || seen[key] {
			continue
		}
		seen[key] = true
		out = append(out, BlockChange{
			Model: pm.Model, Block: b, Name: pm.Blocks[b].Name, Device: s.Device, Share: s.Share, Batch: batch,
			OldUS: o, NewUS: n.WallUS, Change: float64(n.WallUS)/float64(o) - 1, Where: s.Path(),
		})
	}
	return out
}
