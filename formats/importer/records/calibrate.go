package records

import (
	"cmp"
	"slices"

	"inferplan/formats"
)

// Calibrate replaces a model's certainties by the share of right answers among the first planningCount samples
// with such a certainty: the closest nondecreasing function of the certainty (isotonic regression by pooling
// adjacent violators). Different certainties may become equal, but none change their order. Between two known
// certainties the share of the lower one holds. The records keep the function, for the server.
func Calibrate(m *formats.ModelRecords, planningCount int) {
	// Sort the planning samples by certainty.
	byCertainty := make([]int, planningCount)
	for i := range byCertainty {
		byCertainty[i] = i
	}
	slices.SortFunc(byCertainty, func(a, b int) int { return cmp.Or(cmp.Compare(m.Certainty[a], m.Certainty[b]), cmp.Compare(a, b)) })
	type block struct {
		minCertainty float64 // smallest certainty of the block
		correct, n   int
	}

	// Samples of equal certainty make a block.
	var blocks []block
	for _, i := range byCertainty {
		b := block{minCertainty: m.Certainty[i], n: 1}
		if m.Correct[i] == '1' {
			b.correct = 1
		}
		if k := len(blocks) - 1; k >= 0 && blocks[k].minCertainty == b.minCertainty && blocks[k].n > 0 {
			blocks[k].correct, blocks[k].n = blocks[k].correct+b.correct, blocks[k].n+1
			continue
		}
		blocks = append(blocks, b)
	}

	// Pool adjacent violators: merge a block with those before it until the share of correct answers rises.
	pooledBlocks := blocks[:0]
	for _, b := range blocks {
		for len(pooledBlocks) > 0 {
			lastBlock := &pooledBlocks[len(pooledBlocks)-1]
			if lastBlock.correct*b.n < b.correct*lastBlock.n {
				break
			}
			b = block{minCertainty: lastBlock.minCertainty, correct: lastBlock.correct + b.correct, n: lastBlock.n + b.n}
			pooledBlocks = pooledBlocks[:len(pooledBlocks)-1]
		}
		pooledBlocks = append(pooledBlocks, b)
	}

	// Replace every certainty by its block's share of correct answers.
	m.Calibration = make(formats.Calibration, len(pooledBlocks))
	for i, b := range pooledBlocks {
		m.Calibration[i] = formats.CalibrationStep{MinRaw: b.minCertainty, Certainty: float64(b.correct) / float64(b.n)}
	}
	for i, c := range m.Certainty {
		m.Certainty[i] = m.Calibration.Calibrated(c)
	}
}
