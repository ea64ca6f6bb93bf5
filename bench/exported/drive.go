package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/started"
	"inferplan/formats"
)

// driven holds what a model attains at the rate that its plan states, in simulation and served.
type driven struct {
	name                   string
	rps, simulated, served float64
}

// leastAttained is the share of requests in time that plans promise where nobody says otherwise.
const leastAttained = .99

// driveSLO is that of models that are driven.
const driveSLO = "200ms"

// driveAll takes models on the shortest way, with default flags: a profile, a plan, its simulation, and the
// plan served and driven at the rate that it states.
func (o *options) driveAll(ctx context.Context) error {
	fmt.Print("| model | requests/s stated | in time, simulated | served |\n|---|---|---|---|\n")
	load := started.LoadAverage()
	var all []driven
	for i := range cases {
		if !cases[i].driven || !strings.Contains(cases[i].file, o.only) {
			continue
		}
		d, err := o.drive(ctx, &cases[i])
		if err != nil {
			return fmt.Errorf("%s: %w", cases[i].file, err)
		}
		fmt.Printf("| %s | %.5g | %.4f | %.4f |\n", d.name, d.rps, d.simulated, d.served)
		all = append(all, *d)
	}
	simulated, served, worst := 0, 0, 1.0
	for _, d := range all {
		if d.simulated >= leastAttained {
			simulated++
		}
		if d.served >= leastAttained {
			served++
		}
		worst = min(worst, d.served)
	}
	figure := func(claim string, n int, note string) figures.Figure {
		return figures.Figure{Claim: claim, Source: "models as people exported them", Asked: fmt.Sprint(len(all)), Measured: float64(n), Holds: figures.If(n == len(all)), Note: note}
	}
	list := []figures.Figure{
		figure("models with .99 in time at the rate that their plan states, simulated", simulated, ""),
		figure("the same served", served, fmt.Sprintf("at least %.4f; load average %s before the start", worst, load)),
	}
	if o.figures == "" || o.only != "" {
		return nil
	}
	if err := figures.Put(o.figures, o.call, list...); err != nil {
		return err
	}
	list, err := figures.Read(o.figures)
	if err != nil || o.doc == "" {
		return err
	}
	return figures.Show(o.doc, "exported", list)
}

// drive takes a model on the shortest way.
func (o *options) drive(ctx context.Context, c *exported) (*driven, error) {
	dir, err := os.MkdirTemp("", "driven-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(filepath.Join(o.third, c.file))
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	steps := [][]string{
		append([]string{"profile", file, "--budget", "30s", "-o", in("profile.json")}, c.flags...),
		{"solve", "--profile", in("profile.json"), "--slo", driveSLO, "-o", in("plan.json")},
		{"simulate", in("plan.json"), "-o", in("simulated.json")},
	}
	for _, step := range steps {
		if err := o.ended(ctx, step...); err != nil {
			return nil, err
		}
	}
	last, code, err := o.serve(ctx, in("plan.json"), filepath.Dir(file), func(ctx context.Context, at string) error {
		return o.ended(ctx, "load", "http://"+at, "--plan", in("plan.json"), "--duration", "30s", "--warmup", "2s", "-o", in("served.json"))
	})
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return nil, fmt.Errorf("serve: %w: %s", err, last)
	}
	plan, err := formats.ReadPlan(in("plan.json"))
	if err != nil {
		return nil, err
	}
	simulated, err := formats.ReadReport(in("simulated.json"))
	if err != nil {
		return nil, err
	}
	served, err := formats.ReadReport(in("served.json"))
	if err != nil {
		return nil, err
	}
	return &driven{plan.Deployment[0].Model, plan.Objective.Value, simulated.Attainment, served.Attainment}, nil
}

// ended runs a command that has to succeed.
func (o *options) ended(ctx context.Context, args ...string) error {
	last, code, err := o.command(ctx, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return fmt.Errorf("plan %s: %w: %s", args[0], err, last)
	}
	return nil
}
