package main

import (
	"fmt"
	"math"

	"inferplan/bench/instrument"
)

// measureSpeed measures the case with most requests alone.
func (b *bench) measureSpeed(r *instrument.Run, _ *instrument.Table) error {
	least := math.Inf(1)
	var out outcome
	for range 3 {
		var err error
		if out, err = b.liveTweets().measure(r.Ctx, policySpec("feas", "tweet"), 1); err != nil {
			return err
		}
		least = min(least, out.CPU)
	}
	r.AtMost(fmt.Sprintf("CPU time of a run of %d requests under feas, least of 3", out.Requests), "simulator", 2, "s", least)
	r.AtLeast("events (module arrivals and ends of batches) per CPU-second", "simulator", 5e6, "1/s", float64(out.Events)/least)
	return nil
}
