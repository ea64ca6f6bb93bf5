package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"inferplan/bench/started"
	"inferplan/formats"
	"inferplan/testkit/natstest"
)

// round holds the reports of one load with one seed: simulated with the times of the profile,
// simulated with the times recorded while serving (nil if none were recorded), and served.
type round struct {
	promised, replayed, served *formats.Report
}

// round serves a plan at a load, and simulates the same arrivals.
func (b *bench) round(ctx context.Context, d *deployment, load float64, seed int) (*round, error) {
	arrivals := []string{"--load", fmt.Sprint(load), "--duration", cmp.Or(d.duration, b.duration).String(), "--warmup", b.warmup.String(), "--seed", strconv.Itoa(seed)}
	if err := b.drive(ctx, d, arrivals); err != nil {
		return nil, err
	}
	x := &round{}
	var err error
	if x.served, err = formats.ReadReport(filepath.Join(b.dir, "served.json")); err != nil {
		return nil, err
	}
	if x.promised, err = b.simulate(ctx, "promised.json", arrivals); err != nil || !d.records {
		return x, err
	}
	x.replayed, err = b.simulate(ctx, "replayed.json", append(arrivals, "--service", "service.json"))
	return x, err
}

func (b *bench) simulate(ctx context.Context, report string, flags []string) (*formats.Report, error) {
	if err := b.command(ctx, append([]string{"simulate", "plan.json", "-o", report}, flags...)...); err != nil {
		return nil, err
	}
	return formats.ReadReport(filepath.Join(b.dir, report))
}

// drive serves the plan while plan load drives it.
func (b *bench) drive(ctx context.Context, d *deployment, arrivals []string) error {
	port, err := natstest.FreePort()
	if err != nil {
		return err
	}
	address := fmt.Sprint("127.0.0.1:", port)
	args := append([]string{"serve", "plan.json", "--http", address, "--metrics", "off"}, d.serve...)
	if d.records {
		args = append(args, "--grpc", "off", "--record", "service.json")
	}
	cmd := exec.CommandContext(ctx, b.plan, args...)
	cmd.Dir = b.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	health := "/v2/health/ready"
	if d.text {
		health = "/health"
	}
	if err = started.Answers(ctx, "http://"+address+health); err == nil {
		err = b.command(ctx, append(append([]string{"load", "http://" + address, "--plan", "plan.json", "-o", "served.json"}, arrivals...), d.load...)...)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%w\n%s", err, log.Bytes())
	}
	return nil
}

// command runs plan in the deployment's folder.
func (b *bench) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, b.plan, args...)
	cmd.Dir = b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("plan %v: %w\n%s", args, err, out)
	}
	return nil
}
