package records

import (
	"cmp"
	"slices"

	"inferplan/formats"
)

// Calibrate replaces certainties by the share of right answers among the first samples with such a certainty: the
// closest nondecreasing function of the certainty (isotonic regression by pooling adjacent violators). Different
// certainties may become equal, but none change their order. Between two known certainties the share of the lower
// one holds. The records keep the function, for the server.
func Calibrate(m *formats.ModelRecords, first int) {
	// Sort the planning samples by certainty.
	order := make([]int, first)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(m.Certainty[a], m.Certainty[b]), cmp.Compare(a, b)) })
	type block struct {
		from     float64 // smallest certainty of the block
		right, n int
	}

	// Samples of equal certainty make a block.
	var blocks []block
	for _, i := range order {
		b := block{from: m.Certainty[i], n: 1}
		if m.Correct[i] == '1' {
			b.right = 1
		}
		if k := len(blocks) - 1; k >= 0 && blocks[k].from == b.from && blocks[k].n > 0 {
			blocks[k].right, blocks[k].n = blocks[k].right+b.right, blocks[k].n+1
			continue
		}
		blocks = append(blocks, b)
	}

	// Pool adjacent violators: merge a block with those before it until the share of correct answers rises.
	pooled := blocks[:0]
	for _, b := range blocks {
		for len(pooled) > 0 {
			last := &pooled[len(pooled)-1]
			if last.right*b.n < b.right*last.n {
				break
			}
			b = block{from: last.from, right: last.right + b.right, n: last.n + b.n}
			pooled = pooled[:len(pooled)-1]
		}
		pooled = append(pooled, b)
	}

	// Replace every certainty by its block's share of correct answers.
	m.Calibration = make(formats.Calibration, len(pooled))
	for i, b := range pooled {
		m.Calibration[i] = formats.CalibrationStep{From: b.from, Certainty: float64(b.right) / float64(b.n)}
	}
	for i, c := range m.Certainty {
		m.Certainty[i] = m.Calibration.At(c)
	}
}
