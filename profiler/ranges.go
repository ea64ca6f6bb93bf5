package profiler

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Ranges says which ranges of blocks are measured in one piece, beside the blocks and the whole model. A range
// costs less than the sum of its blocks by the cost of its inner cuts: copies, layouts, lost fusions.
type Ranges struct {
	// List returns ranges [first, last) of a model at a device kind, share and batch. If it is nil, there are
	// none. Ranges of fewer than two blocks or of all blocks are ignored.
	List func(m *formats.ProfileModel, device string, share, batch int) [][2]int
	// OnlyRanges says that nothing but ranges is measured, at the shares and batches that the profile has.
	OnlyRanges bool
	plan       *formats.Plan
}

// errNoRange is the error of a run that measures nothing but ranges of blocks, where the plan runs none.
var errNoRange = fmt.Errorf("%w: the plan runs no blocks", ErrInput)

// AllRanges selects all ranges of at least two neighbouring blocks to be measured in one piece. The ranges are [from,
// to) in numbers of blocks. The list depends neither on device, share nor batch.
func AllRanges() Ranges {
	return Ranges{List: func(m *formats.ProfileModel, _ string, _, _ int) [][2]int {
		var out [][2]int
		for i := range m.Blocks {
			for j := i + 2; j <= len(m.Blocks); j++ {
				out = append(out, [2]int{i, j})
			}
		}
		return out
	}}
}

// UsedRanges selects the ranges of blocks that the stages of a plan run, at the measured batch sizes that their times
// are read from: a stage's time at a batch is that of the next larger measured one. A stage is a number of
// neighbouring blocks that one device runs in one piece. OnlyRanges leaves blocks and whole models as the profile has
// them.
func UsedRanges(plan *formats.Plan) Ranges {
	out := Ranges{OnlyRanges: true, plan: plan}
	out.List = func(m *formats.ProfileModel, device string, share, batch int) [][2]int {
		var list [][2]int
		for s := range plan.Stages() {
			isMeasured := s.Deployed.Model == m.Model && s.Deployed.NumBlocks == len(m.Blocks) && s.Device == device && s.Share == share
			// The plan's batch is the largest that the stage runs, so smaller ones are measured, too.
			if isMeasured && batch <= nextMeasuredBatch(m, device, share, s.Pipeline.Batch) {
				list = append(list, s.Blocks)
			}
		}
		return list
	}
	return out
}

// sharesOn returns the shares (v stands for 1/v of a device) that the plan uses on a kind of device, and 1,
// ascending.
func (r *Ranges) sharesOn(device string) []int {
	out := []int{1}
	if r.plan == nil {
		return out
	}
	for s := range r.plan.Stages() {
		if s.Device == device {
			out = append(out, s.Share)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nextMeasuredBatch returns the smallest measured batch size that is not below a batch, or 0 if there is none.
func nextMeasuredBatch(m *formats.ProfileModel, device string, share, batch int) int {
	next := 0
	for i := range m.Measurements {
		h := &m.Measurements[i]
		if h.Device == device && h.Share == share && h.Batch >= batch && (next == 0 || h.Batch < next) {
			next = h.Batch
		}
	}
	return next
}

// missingRanges returns the ranges of a job that are requested at a share and batch (key) and not measured yet, in
// order. A range of one block or of all blocks is none, because these are measured anyway. With Options.Force, or if
// the blocks are measured anew, all requested ones count as missing.
func (r *runner) missingRanges(j *modelJob, key measurementKey) [][2]int {
	if r.options.Ranges.List == nil {
		return nil
	}
	m := j.entry
	if len(m.Blocks) == 0 { // the model is not cut yet
		m = &formats.ProfileModel{Model: m.Model, Blocks: make([]formats.Block, min(r.options.Blocks, j.m.atomCount()))}
	}

	// Take the requested ranges, less those that are none, and those that the profile has.
	requested := slices.Clone(r.options.Ranges.List(m, r.dev.Kind, key.share, key.batch))
	slices.SortFunc(requested, compareRanges)
	known := j.entry.FindMeasurement(r.dev.Kind, key.share, key.batch)
	return slices.DeleteFunc(slices.Compact(requested), func(b [2]int) bool {
		n := len(m.Blocks)
		if b[0] < 0 || b[1] > n || b[1]-b[0] < 2 || b[1]-b[0] == n {
			return true // it is none
		}
		return !r.options.Force && !j.measuresBlocks[key] && known != nil && hasRange(known, b)
	})
}

// compareRanges orders ranges by their first block, then by their end.
func compareRanges(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }

// hasRange reports whether a measurement has the range.
func hasRange(m *formats.Measurement, b [2]int) bool {
	return slices.ContainsFunc(m.Ranges, func(r formats.RangeLatency) bool { return r.Blocks == b })
}

// putRanges adds the times of ranges of blocks to a measurement, in the order of the ranges, in place of older times
// of the same ranges.
func putRanges(m *formats.Measurement, list []formats.RangeLatency) {
	m.Ranges = slices.Clone(m.Ranges)
	for _, l := range list {
		index, found := slices.BinarySearchFunc(m.Ranges, l, func(a, b formats.RangeLatency) int { return compareRanges(a.Blocks, b.Blocks) })
		if found {
			m.Ranges[index] = l
		} else {
			m.Ranges = slices.Insert(m.Ranges, index, l)
		}
	}
}

// rescaledRange corrects the time l of a range that was measured in a later run than the blocks beside it, when the
// machine may have been less busy or more. It scales l by the ratio between the whole model's time in the earlier
// run and now (current).
func rescaledRange(l, current, earlier formats.Latency) formats.Latency {
	ratio := func(current, earlier document.Micros) float64 {
		if current <= 0 || earlier <= 0 {
			return 1
		}
		return float64(earlier) / float64(current)
	}
	return l.Scaled(ratio(current.WallUS, earlier.WallUS), ratio(current.CPUUS, earlier.CPUUS))
}

// rangeMemoryFactor is the number of bytes of a group's memory that a byte of a range's weights takes: a session has
// its own copies, beside those of the blocks and of the whole model.
const rangeMemoryFactor = 2 * memoryFactor

// rangePass is the ranges that are loaded at the same time, by share and batch.
type rangePass map[measurementKey][][2]int

// splitPasses divides the ranges of blocks that are still to be measured at a share into passes. The ranges of a
// pass are loaded at the same time, beside the blocks and the whole model, so their weights must fit into memory.
// There is at least one pass.
func (g *jobGroup) splitPasses(j *modelJob, share int) []rangePass {
	wanted := map[measurementKey][][2]int{}
	var missing [][2]int
	for _, key := range j.todo {
		if key.share == share {
			wanted[key] = g.run.missingRanges(j, key)
			missing = append(missing, wanted[key]...)
		}
	}
	slices.SortFunc(missing, compareRanges)

	// Fill one pass after the other, up to the weight bytes that are allowed. A pass lists its ranges by share and
	// batch.
	memoryLimit, usedMemory := groupMemory/rangeMemoryFactor, int64(0)
	out := []rangePass{{}}
	for i, b := range slices.Compact(missing) {
		if usedMemory += j.cut.WeightBytes(b[0], b[1]); i > 0 && usedMemory > memoryLimit {
			out, usedMemory = append(out, rangePass{}), j.cut.WeightBytes(b[0], b[1])
		}
		for key, list := range wanted {
			if slices.Contains(list, b) {
				out[len(out)-1][key] = append(out[len(out)-1][key], b)
			}
		}
	}
	return out
}

// loadRanges loads the ranges of a pass p into every copy of the model at a share, and binds them at the batch sizes
// that need them.
func (g *jobGroup) loadRanges(ctx context.Context, j *modelJob, share int, places []loadTarget, p rangePass) error {
	batches := map[[2]int][]int{}
	var blockRanges [][2]int
	for _, key := range j.todo {
		for _, b := range p[key] {
			if len(batches[b]) == 0 {
				blockRanges = append(blockRanges, b)
			}
			batches[b] = append(batches[b], key.batch)
		}
	}
	for k, c := range j.loadedByShare[share] {
		for _, b := range blockRanges {
			g.run.progress.event(Event{Stage: StageLoad, Model: j.info.name, Share: share, DoneShare: g.run.progress.fraction(0)})
			if err := c.loadRange(ctx, places[k], j.cut, b, batches[b]); err != nil {
				return err
			}
		}
	}
	return nil
}
