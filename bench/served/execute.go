package served

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/executor"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// Worker runs a worker and ends the process, if this process was started as one. A program that calls Execute calls it first.
func Worker() {
	if len(os.Args) != 2 || os.Args[1] != "worker" {
		return
	}
	if err := worker.Main(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Execute starts to execute a plan in this process. Its workers have the models of a folder and, where the options name no CPUs, the
// last CPU of this process.
func Execute(ctx context.Context, plan *formats.Plan, models string, w executor.WorkerOptions) (*executor.Executor, error) {
	if w.CPUs == nil {
		cpus, err := engine.CPUs()
		if err != nil {
			return nil, err
		}
		w.CPUs = cpus[len(cpus)-1:]
	}
	x, err := executor.New(ctx, plan, executor.Options{
		CoreOptions: executor.CoreOptions{ModelsDir: models, RecordService: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, WorkerOptions: w,
	})
	if err != nil {
		return nil, fmt.Errorf("starting to serve: %w", err)
	}
	return x, nil
}

// Pace calls send for each of some moments, in rising order and counted from now, when the moment comes, whatever became of the calls
// before. It returns when the calls really began, after the last has returned. If the context ends, the moments behind it are left out.
func Pace(ctx context.Context, moments []time.Duration, send func(i int, sent time.Time)) (began []time.Duration, err error) {
	var calls sync.WaitGroup
	start := time.Now()
	for i, due := range moments {
		time.Sleep(time.Until(start.Add(due)))
		if err = ctx.Err(); err != nil {
			break
		}
		sent := time.Now()
		began = append(began, sent.Sub(start))
		calls.Go(func() { send(i, sent) })
	}
	calls.Wait()
	return began, err
}

// Replay simulates a plan on requests, with recorded times or, without any, those of the plan. Before it begins, change sets what else
// the simulation needs.
func Replay(ctx context.Context, plan *formats.Plan, list []arrivals.Request, times *sim.Samples, change func(t *policy.Tables, c *sim.Config) error) (*sim.Result, error) {
	tables, err := policies.Compile(plan)
	if err != nil {
		return nil, err
	}
	cfg := sim.Config{Tables: tables, Source: arrivals.Slice(list), NoReport: true}
	if times != nil {
		cfg.Service, err = sim.RecordedService(tables, *times, false, 1)
	}
	if err := errors.Join(err, change(tables, &cfg)); err != nil {
		return nil, err
	}
	if cfg.Policy, err = policies.New(plan.Policy, tables); err != nil {
		return nil, err
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return res, nil
}
