package workers

import (
	"fmt"
	"testing"
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// A worker on a GPU holds as many batches as fit the memory that is locked for
// it, but enough to run ahead.
func TestSlotsOfAGPU(t *testing.T) {
	o := &Options{}
	o.SetDefaults()
	c := &supervisor{core: &turn.Core{Options: &turn.Options{Engine: engineONNX}}, options: o}
	for _, x := range []struct {
		kind   string
		stride int64
		want   int
	}{{"H100", 1 << 20, 64}, {"H100", 16 << 20, 16}, {"H100", 1 << 30, 4}, {"cpu-1", 1 << 30, 64}} {
		if got := c.slotCount(&Device{Kind: x.kind}, x.stride); got != x.want {
			t.Errorf("%s, %d bytes a batch: %d slots, want %d", x.kind, x.stride, got, x.want)
		}
	}
	c.core.Options.Engine = "replay"
	if got := c.slotCount(&Device{Kind: "H100"}, 1<<30); got != 64 {
		t.Errorf("replayed: %d slots", got)
	}
}

// The sizes that a plan tells apart are those that were measured.
func TestSizesOf(t *testing.T) {
	ms := time.Millisecond
	for _, x := range []struct {
		infer    []time.Duration
		measured []int
		want     string
	}{
		{[]time.Duration{ms, 2 * ms, 4 * ms, 4 * ms}, nil, "[1 2 4]"}, {[]time.Duration{ms}, nil, "[1]"}, {[]time.Duration{ms, ms, ms}, nil, "[3]"},
		{[]time.Duration{ms, 2 * ms, 3 * ms}, nil, "[1 2 3]"}, {[]time.Duration{ms, 2 * ms, 3 * ms, 4 * ms}, []int{1, 2, 4}, "[1 2 4]"},
	} {
		if got := fmt.Sprint(measuredSizes(&policy.Stage{Infer: x.infer, MeasuredBatches: x.measured}, len(x.infer))); got != x.want {
			t.Errorf("%v: sizes %s, want %s", x.infer, got, x.want)
		}
	}
}
