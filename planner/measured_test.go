package planner

import (
	"fmt"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
)

// A promise says how loose the numbers are that it rests on.
func TestLoosePromises(t *testing.T) {
	plan := &formats.Plan{Deployment: []formats.Deployed{{Model: "squeezenet", NumBlocks: 4, Pipelines: []formats.Pipeline{
		{Batch: 2, RPS: 223.8, Stages: []formats.Stage{{Blocks: [2]int{0, 4}, Device: "cpu-1", Share: 1}}},
	}}}}
	blocks := func(half document.Micros) []formats.Latency {
		out := []formats.Latency{{WallUS: 958}, {WallUS: 1049}, {WallUS: 1158}, {WallUS: 1302}}
		for i := range out {
			out[i].HalfWidthUS = half
		}
		return out
	}
	for _, c := range []struct {
		whole, half document.Micros
		batch       int
		want        string
	}{
		{10121, 0, 2, "[squeezenet: 223.8 rps, ± 56 %: on cpu-1 at batch 2 the whole model took 2.27 times the sum of its blocks]"},
		{10121, 0, 4, "[squeezenet: 223.8 rps, ± 56 %: on cpu-1 at batch 4 the whole model took 2.27 times the sum of its blocks]"},
		{10121, 0, 1, "[]"}, // of another batch
		{4000, 20, 2, "[]"},
		{0, 223, 2, "[squeezenet: 223.8 rps, ± 17 %: on cpu-1 at batch 2 the medians of the blocks are known to ± 20 %]"},
		{5360, 223, 2, "[squeezenet: 223.8 rps, ± 31 %: on cpu-1 at batch 2 the whole model took 1.20 times the sum of its blocks, and the medians of the blocks are known to ± 20 %]"},
	} {
		x := formats.Measurement{Device: "cpu-1", Share: 1, Batch: c.batch, Blocks: blocks(c.half)}
		if c.whole > 0 {
			x.WholeModel = &formats.Latency{WallUS: c.whole}
		}
		profile := &formats.Profile{Models: []formats.ProfileModel{{Model: "squeezenet", Blocks: make([]formats.Block, 4), Measurements: []formats.Measurement{x}}}}
		if got := fmt.Sprint(looseRateWarnings(plan, profile)); got != c.want {
			t.Errorf("whole %v, half width %v: got\n%s, want\n%s", c.whole, c.half, got, c.want)
		}
	}
}
