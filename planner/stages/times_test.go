package stages

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const us = time.Microsecond

// What was measured in one piece counts; the rest is estimated from the smallest
// piece that holds it, by the bytes at its cuts.
func TestTimesOfRanges(t *testing.T) {
	blocks := []time.Duration{100 * us, 200 * us, 300 * us, 10 * us}
	bytes := []int64{10, 30, 60}
	whole := func(d time.Duration) MeasuredRange { return MeasuredRange{FirstBlock: 0, EndBlock: 4, Time: d} }
	for _, c := range []struct {
		name        string
		pieces      []MeasuredRange
		bytes       []int64
		first, last int
		want        time.Duration
	}{
		{"nothing measured in one piece", nil, bytes, 0, 3, 600 * us},
		{"whole", []MeasuredRange{whole(560 * us)}, bytes, 0, 4, 560 * us},
		{"one block", []MeasuredRange{whole(560 * us)}, bytes, 1, 2, 200 * us},
		{"by bytes, the last cut at most its block", []MeasuredRange{whole(560 * us)}, bytes, 0, 2, 290 * us},
		{"two cuts", []MeasuredRange{whole(560 * us)}, bytes, 0, 3, 560 * us},
		{"full cut", []MeasuredRange{whole(560 * us)}, bytes, 2, 4, 300 * us},
		{"unknown bytes: cuts alike", []MeasuredRange{whole(580 * us)}, []int64{10, -1, 60}, 0, 2, 290 * us},
		{"slower in one piece", []MeasuredRange{whole(710 * us)}, bytes, 0, 2, 310 * us},
		{"measured range", []MeasuredRange{whole(560 * us), {FirstBlock: 0, EndBlock: 3, Time: 500 * us}}, bytes, 0, 3, 500 * us},
		{"inside it", []MeasuredRange{whole(560 * us), {FirstBlock: 0, EndBlock: 3, Time: 500 * us}}, bytes, 0, 2, 275 * us},
		{"not inside it", []MeasuredRange{whole(560 * us), {FirstBlock: 0, EndBlock: 3, Time: 500 * us}}, bytes, 1, 4, 470 * us},
		{"only a range measured, outside", []MeasuredRange{{FirstBlock: 0, EndBlock: 2, Time: 250 * us}}, bytes, 1, 3, 500 * us},
		{"more saved than cuts can", []MeasuredRange{whole(1 * us)}, bytes, 0, 2, 200 * us},
		{"and the whole as measured", []MeasuredRange{whole(1 * us)}, bytes, 0, 4, 1 * us},
		{"nothing crosses: cuts alike", []MeasuredRange{whole(583 * us)}, []int64{0, 0, 0}, 1, 3, 491 * us},
	} {
		cost := BatchCost{Batch: 1, Blocks: blocks}
		cost.SetPieces(c.pieces, c.bytes)
		if got := MaxTime(&ShareCosts{Batches: []BatchCost{cost}}, 1, c.first, c.last); (got - c.want).Abs() > time.Nanosecond {
			t.Errorf("%s: [%d,%d) takes %v, expected %v", c.name, c.first, c.last, got, c.want)
		}
	}
}

// Cut costs keep times in order: a longer range never takes less than a part of it,
// unless a measured one does, and what was measured is kept to the nanosecond.
func TestTimesKeepOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "blocks")
		cost, bytes, sum := BatchCost{Batch: 1}, make([]int64, n-1), time.Duration(0)
		for i := range n {
			cost.Blocks = append(cost.Blocks, time.Duration(rapid.IntRange(0, 3000).Draw(t, "us"))*us)
			sum += max(cost.Blocks[i], minBlock)
			if i > 0 {
				bytes[i-1] = int64(rapid.IntRange(-1, 50).Draw(t, "bytes"))
			}
		}
		whole := sum * time.Duration(rapid.IntRange(10, 150).Draw(t, "percent")) / 100
		cost.SetPieces([]MeasuredRange{{EndBlock: n, Time: whole}}, bytes)
		times := cost.rangeTimes()
		if got := times.Time(0, n); got != max(whole, minBlock) {
			t.Fatalf("the whole takes %v, measured %v", got, whole)
		}
		for i := range n {
			for j := i + 1; j <= n; j++ {
				if j-i == n {
					continue
				}
				d := times.Time(i, j)
				if j-i == 1 && d != max(cost.Blocks[i], minBlock) {
					t.Fatalf("block %d takes %v, measured %v", i, d, cost.Blocks[i])
				}
				if longer := j < n && (i > 0 || j+1 < n); longer && times.Time(i, j+1) < d-time.Nanosecond {
					t.Fatalf("[%d,%d) takes %v, with a block more %v", i, j, d, times.Time(i, j+1))
				}
				if cost.IsEstimated(i, j) != (j-i > 1) {
					t.Fatalf("[%d,%d) estimated: %v", i, j, cost.IsEstimated(i, j))
				}
			}
		}
	})
}
