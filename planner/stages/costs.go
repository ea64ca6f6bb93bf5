package stages

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/lists"
)

// MeasuredCosts returns the times and memory of a model as the profile measured them, for the search for stages: entry
// [k][v-1] has those on a share 1/v of a device of pools[k], by rising batch size. Measurements on other kinds or
// smaller shares are left out. maxBatch is the largest batch size that may be planned, 0 for no limit. Errors name the
// profile's file and the field, modelPath being the path of the model.
func MeasuredCosts(m *formats.ProfileModel, pools []formats.Pool, maxBatch int, file, modelPath string) ([][]ShareCosts, error) {
	costs, bytesAfter := make([][]ShareCosts, len(pools)), crossingBytes(m)
	index := map[string]int{}
	for k := range pools {
		index[pools[k].Device] = k
		costs[k] = make([]ShareCosts, pools[k].MaxShares)
	}

	// Convert each measurement on a kind and share of the pools.
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		k, ok := index[ms.Device]
		share := max(ms.Share, 1)
		if !ok || share > pools[k].MaxShares {
			continue
		}

		// Insert it in order of batch size.
		path := fmt.Sprintf("%s.measurements[%d]", modelPath, i)
		c, err := newBatchCost(m, ms, file, path)
		if err != nil {
			return nil, err
		}
		c.SetPieces(piecesOf(ms), bytesAfter)
		s := &costs[k][share-1]
		position, duplicate := slices.BinarySearchFunc(s.Batches, ms.Batch, func(c BatchCost, b int) int { return c.Batch - b })
		if duplicate {
			return nil, &document.Error{File: file, Path: path, Found: fmt.Sprintf("%s, share %d, batch %d a second time", ms.Device, share, ms.Batch), Expected: "each once"}
		}
		s.Batches = slices.Insert(s.Batches, position, c)
	}

	// Set the limit on batches, the padding, and the time to dispatch a batch, also of shares without measurements.
	for k := range costs {
		for v := range costs[k] {
			costs[k][v].MaxBatch = maxBatch
			costs[k][v].PadsToNext = padsOf(m, pools[k].Device)
			costs[k][v].Dispatch = m.DispatchUS.D()
		}
	}
	return costs, nil
}

// newBatchCost returns the cost of a model at the batch size of one measurement: the times of its blocks, its memory,
// and the mean time over the median. Pieces (ranges measured in one run) are not set yet. If the measurement's blocks
// or ranges do not fit the model's, it returns an error that names the file and the field below path.
func newBatchCost(m *formats.ProfileModel, ms *formats.Measurement, file, path string) (BatchCost, error) {
	fail := func(field, found, expected string) (BatchCost, error) {
		return BatchCost{}, &document.Error{File: file, Path: path + field, Found: found, Expected: expected}
	}
	if len(ms.Blocks) != len(m.Blocks) {
		return fail(".blocks", fmt.Sprintf("%d latencies", len(ms.Blocks)), fmt.Sprintf("%d, one per block", len(m.Blocks)))
	}
	if ms.Batch < 1 {
		return fail(".batch", fmt.Sprint(ms.Batch), "at least 1")
	}
	c := BatchCost{Batch: ms.Batch, Memory: ms.MemoryBytes, Blocks: make([]time.Duration, len(ms.Blocks))}
	for b := range ms.Blocks {
		if c.Blocks[b] = ms.Blocks[b].WallUS.D(); c.Blocks[b] < 0 {
			return fail(fmt.Sprintf(".blocks[%d].wall_us", b), ms.Blocks[b].WallUS.String(), "at least 0")
		}
	}
	for r := range ms.Ranges {
		if blocks := ms.Ranges[r].Blocks; blocks[0] < 0 || blocks[1] <= blocks[0] || blocks[1] > len(m.Blocks) {
			return fail(fmt.Sprintf(".ranges[%d].blocks", r), fmt.Sprint(blocks), fmt.Sprintf("[first, last) of %d blocks", len(m.Blocks)))
		}
	}
	if ms.WholeModel != nil && ms.WholeModel.MeanUS > 0 && ms.WholeModel.WallUS > 0 {
		c.MeanFactor = float64(ms.WholeModel.MeanUS) / float64(ms.WholeModel.WallUS)
	}
	return c, nil
}

// padsOf returns the value of PadsToNext for a model on a device kind: by boundary before, between and after the blocks,
// whether stages that begin and end at such boundaries have their batches padded to the next larger measured size. On
// CPUs none have; on GPUs the boundaries are those where a single tensor crosses. If all are such, it returns nil, which
// stands for always padded.
func padsOf(m *formats.ProfileModel, device string) []bool {
	if !formats.IsCPU(device) && !slices.ContainsFunc(m.Blocks, func(b formats.Block) bool { return len(b.Cut) > 1 }) && len(m.Inputs) <= 1 && len(m.Outputs) <= 1 {
		return nil
	}
	return lists.Filled(len(m.Blocks)+1, func(i int) bool { return !formats.IsCPU(device) && m.OneTensor(i) })
}

// piecesOf returns the ranges of blocks [FirstBlock, EndBlock) that a measurement ran and timed in one run: the whole model,
// if it was measured, and others. MeanFactor, the mean time over the median, is set for ranges other than the whole model
// whose mean is known.
func piecesOf(ms *formats.Measurement) []MeasuredRange {
	var pieces []MeasuredRange
	if ms.WholeModel != nil {
		pieces = append(pieces, MeasuredRange{FirstBlock: 0, EndBlock: len(ms.Blocks), Time: ms.WholeModel.WallUS.D()})
	}
	for _, r := range ms.Ranges {
		p := MeasuredRange{FirstBlock: r.Blocks[0], EndBlock: r.Blocks[1], Time: r.Latency.WallUS.D()}
		if r.Latency.MeanUS > 0 && r.Latency.WallUS > 0 {
			p.MeanFactor = float64(r.Latency.MeanUS) / float64(r.Latency.WallUS)
		}
		pieces = append(pieces, p)
	}
	return pieces
}

// crossingBytes returns, after each block of a model but the last, the bytes of a sample that cross to the next
// block, as float32 if the model computes in it. They are negative if unknown.
func crossingBytes(m *formats.ProfileModel) []int64 {
	var bytes []int64
	for i := range m.Blocks[:max(len(m.Blocks)-1, 0)] {
		b := &m.Blocks[i]
		switch {
		case b.CutBytesFP32.IsKnown():
			bytes = append(bytes, b.CutBytesFP32.Bytes())
		case b.CutBytesFP16.IsKnown():
			bytes = append(bytes, 2*b.CutBytesFP16.Bytes())
		default:
			bytes = append(bytes, -1)
		}
	}
	return bytes
}
