package stages

import (
	"errors"
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Measurements are gathered by pool and share, ascending by batch, those on other
// devices and shares left out. With a largest batch, the first measured size from
// there on stands for it.
func TestCostsAscendByBatchAndShare(t *testing.T) {
	m := &formats.ProfileModel{Model: "m", Blocks: make([]formats.Block, 1)}
	for _, v := range []struct {
		device       string
		share, batch int
	}{{"A", 1, 8}, {"A", 1, 2}, {"A", 2, 2}, {"A", 3, 2}, {"B", 0, 1}, {"C", 1, 1}} {
		m.Measurements = append(m.Measurements, formats.Measurement{Device: v.device, Share: v.share, Batch: v.batch, Blocks: make([]formats.Latency, 1), MemoryBytes: int64(v.batch)})
	}
	pools := []formats.Pool{{Device: "A", MaxShares: 2}, {Device: "B", MaxShares: 1}}
	for _, c := range []struct {
		maxBatch int
		whole    []int // batches on a whole device A
		memory   int64 // at the largest of them
	}{{0, []int{2, 8}, 8}, {8, []int{2, 8}, 8}, {4, []int{2, 4}, 8}, {2, []int{2}, 2}, {1, []int{1}, 2}, {9, []int{2, 8}, 8}} {
		costs, err := MeasuredCosts(m, pools, c.maxBatch, "p.json", "models[0]")
		if err != nil {
			t.Fatal(err)
		}
		got := costs[0][0].PlannableSizes()
		memory := costs[0][0].CostAt(got[len(got)-1]).Memory
		if !slices.Equal(got, c.whole) || memory != c.memory {
			t.Errorf("at most %d: batches %v, the last with %d bytes, expected %v and %d", c.maxBatch, got, memory, c.whole, c.memory)
		}
		if len(costs[0]) != 2 || len(costs[0][1].Batches) != 1 || len(costs[1]) != 1 || len(costs[1][0].Batches) != 1 {
			t.Errorf("at most %d: %+v", c.maxBatch, costs)
		}
	}
	m.Measurements = append(m.Measurements, m.Measurements[0])
	_, err := MeasuredCosts(m, pools, 0, "p.json", "models[0]")
	if e, ok := errors.AsType[*document.Error](err); !ok || e.File != "p.json" || e.Path != "models[0].measurements[6]" {
		t.Errorf("a measurement twice: %v", err)
	}
}
