package main

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/sim"
)

const (
	freshSeed   = 7919
	freshRuns   = 10
	freshLength = 20 * time.Minute
)

// held returns what a plan attains at its stated rate in runs with fresh seeds.
func held(ctx context.Context, plan *formats.Plan) (float64, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return 0, err
	}
	sc.Duration, sc.Warmup, sc.Seed = freshLength, freshLength/20, freshSeed
	res, err := sim.Replicate(ctx, sc, freshRuns)
	if err != nil {
		return 0, fmt.Errorf("simulating: %w", err)
	}
	return res.Report.Models[0].Attainment, nil
}
