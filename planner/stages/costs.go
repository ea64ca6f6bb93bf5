package stages

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
)

// Costs gathers a model's measurements by pool and share, for batches of up to
// maxBatch, or of all sizes where it is 0. Errors name the profile's file and, from
// modelPath on, the field.
func Costs(m *formats.ProfileModel, pools []formats.Pool, maxBatch int, file, modelPath string) ([][]Share, error) {
	fail := func(path, found, expected string) error {
		return &formats.Error{File: file, Path: path, Found: found, Expected: expected}
	}
	costs, crossing := make([][]Share, len(pools)), crossingBytes(m)
	index := map[string]int{}
	for k := range pools {
		index[pools[k].Device] = k
		costs[k] = make([]Share, pools[k].MaxShares)
	}
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		k, ok := index[ms.Device]
		share := max(ms.Share, 1)
		if !ok || share > pools[k].MaxShares {
			continue
		}
		path := fmt.Sprintf("%s.measurements[%d]", modelPath, i)
		if len(ms.Blocks) != len(m.Blocks) {
			return nil, fail(path+".blocks", fmt.Sprintf("%d latencies", len(ms.Blocks)), fmt.Sprintf("%d, one per block", len(m.Blocks)))
		}
		if ms.Batch < 1 {
			return nil, fail(path+".batch", fmt.Sprint(ms.Batch), "at least 1")
		}
		c := BatchCost{Batch: ms.Batch, Memory: ms.MemoryBytes, Blocks: make([]time.Duration, len(ms.Blocks))}
		for b := range ms.Blocks {
			c.Blocks[b] = ms.Blocks[b].WallUS.D()
			if c.Blocks[b] < 0 {
				return nil, fail(fmt.Sprintf("%s.blocks[%d].wall_us", path, b), ms.Blocks[b].WallUS.String(), "at least 0")
			}
		}
		for r := range ms.Ranges {
			if at := ms.Ranges[r].Blocks; at[0] < 0 || at[1] <= at[0] || at[1] > len(m.Blocks) {
				return nil, fail(fmt.Sprintf("%s.ranges[%d].blocks", path, r), fmt.Sprint(at), fmt.Sprintf("[first, last) of %d blocks", len(m.Blocks)))
			}
		}
		c.Fit(piecesOf(ms), crossing)
		s := &costs[k][share-1]
		at, twice := slices.BinarySearchFunc(s.Batches, ms.Batch, func(c BatchCost, b int) int { return c.Batch - b })
		if twice {
			return nil, fail(path, fmt.Sprintf("%s, share %d, batch %d a second time", ms.Device, share, ms.Batch), "each once")
		}
		s.Batches = slices.Insert(s.Batches, at, c)
	}
	if maxBatch > 0 {
		for k := range costs {
			for v := range costs[k] {
				costs[k][v].Batches = capBatches(costs[k][v].Batches, maxBatch)
			}
		}
	}
	return costs, nil
}

// piecesOf lists what a measurement holds of blocks in one piece.
func piecesOf(ms *formats.Measurement) []Piece {
	var out []Piece
	if ms.Whole != nil {
		out = append(out, Piece{First: 0, Last: len(ms.Blocks), Time: ms.Whole.WallUS.D()})
	}
	for _, r := range ms.Ranges {
		out = append(out, Piece{First: r.Blocks[0], Last: r.Blocks[1], Time: r.Latency.WallUS.D()})
	}
	return out
}

// crossingBytes are the bytes of a sample after each block but the last, as the
// model computes them; below 0 where they are not known.
func crossingBytes(m *formats.ProfileModel) []int64 {
	var out []int64
	for i := range m.Blocks[:max(len(m.Blocks)-1, 0)] {
		b := &m.Blocks[i]
		switch {
		case b.CutBytesFP32.Known():
			out = append(out, b.CutBytesFP32.Bytes())
		case b.CutBytesFP16.Known():
			out = append(out, 2*b.CutBytesFP16.Bytes())
		default:
			out = append(out, -1)
		}
	}
	return out
}

// capBatches leaves out what no batch of at most `most` costs: the first
// measured size from there on is the last one needed.
func capBatches(list []BatchCost, most int) []BatchCost {
	for i := range list {
		if list[i].Batch >= most {
			last := list[i]
			last.Batch = most
			return append(slices.Clone(list[:i]), last)
		}
	}
	return list
}
