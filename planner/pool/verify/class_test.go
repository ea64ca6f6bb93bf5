package verify_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
	"inferplan/testkit/pooltest"
)

// Two classes of a model have its weights once in a CPU's memory, and on another
// device that takes turns each has its own: planner and check agree to the byte.
func TestClassesShareWeights(t *testing.T) {
	const mb = 1 << 20
	in := pooltest.Documents()
	for i := range in.Profile.Models[1].Blocks {
		in.Profile.Models[1].Blocks[i].WeightBytes = 8 * mb // of 20
	}
	in.Workload.Section = formats.WorkloadModels{
		{Model: "ocr", Class: "interactive", SLO: document.SLO{Duration: 90 * time.Millisecond}, Weight: 0.5, Percentile: "p99"},
		{Model: "ocr", Class: "batch", SLO: document.SLO{Duration: 900 * time.Millisecond}, Weight: 0.5, Percentile: "p99"},
	}
	opt := planner.Options{Values: map[string]any{"max-partitions": 1}}
	for _, c := range []struct {
		device string
		need   document.Bytes
	}{{"cpu-1", 24 * mb}, {"L", 40 * mb}} {
		in.Cluster.Pools = []formats.Pool{{Device: c.device, Count: 2, Sharing: formats.SharingTime, Memory: c.need}}
		res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.device, err)
			continue
		}
		if f := check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload); len(f) > 0 {
			t.Errorf("%s: %v", c.device, f)
		}
		in.Cluster.Pools[0].Memory--
		f := check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload)
		if len(f) == 0 || f[0].Constraint != "memory" {
			t.Errorf("%s: %v with a byte less", c.device, f)
		}
		_, err = planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if inf, ok := errors.AsType[*planner.InfeasibleError](err); !ok || inf.Constraint != "memory" || inf.Nearest.MemoryBytes != int64(c.need) {
			t.Errorf("%s: %v with a byte less", c.device, err)
		}
	}
}
