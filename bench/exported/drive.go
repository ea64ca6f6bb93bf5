package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"inferplan/bench/served"
	"inferplan/formats"
)

// driven holds what a model attains at the rate that its plan states, in simulation and served.
type driven struct{ rps, simulated, served float64 }

// leastAttained is the share of requests in time that plans promise where nobody says otherwise.
const leastAttained = .99

// driveSLO is that of models that are driven.
const driveSLO = "200ms"

// A model is driven for leastDuration, and for so long that it gets leastRequests: then the standard error of a share of .99 is .002.
const (
	leastDuration = 30 * time.Second
	leastRequests = 3000
)

// drive takes a model on the shortest way, with default flags: a profile, a plan, its simulation, and the plan served and driven at the
// rate that it states.
func (b *bench) drive(ctx context.Context, c *exported) (*driven, error) {
	dir, err := os.MkdirTemp("", "driven-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(filepath.Join(b.third, c.file))
	if err != nil {
		return nil, err
	}
	p := served.Program{Path: b.plan, Folder: dir}
	for _, step := range [][]string{
		append([]string{"profile", file, "--budget", "30s", "-o", "profile.json"}, c.flags...),
		{"solve", "--profile", "profile.json", "--slo", driveSLO, "-o", "plan.json"},
	} {
		if err := p.Run(ctx, step...); err != nil {
			return nil, err
		}
	}
	plan, err := formats.ReadPlan(filepath.Join(dir, "plan.json"))
	if err != nil {
		return nil, err
	}
	simulated, err := p.Simulate(ctx)
	if err != nil {
		return nil, err
	}
	duration := max(leastDuration, time.Duration(leastRequests/plan.Objective.Value*float64(time.Second)).Round(time.Second))
	measured, err := p.Drive(ctx, "/v2/health/ready", []string{"--grpc", "off", "--models-dir", filepath.Dir(file)}, []string{"--duration", duration.String(), "--warmup", "2s"})
	if err != nil {
		return nil, err
	}
	return &driven{plan.Objective.Value, simulated.Attainment, measured.Attainment}, nil
}
