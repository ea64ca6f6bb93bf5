package verify

import (
	"context"
	"time"

	"inferplan/planner/kind"
)

// TailOf is the tail latency of one gear alone, with the latencies of the plan.
func TailOf(ctx context.Context, t *kind.CheckInput, gear int) (time.Duration, error) {
	return gearTail(ctx, t.Plan, gear, newChecker(t).evaluateGears().plannedTimes)
}
