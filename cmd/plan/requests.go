package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"inferplan/cputime"
	"inferplan/executor"
	"inferplan/executor/load"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/planner"
	"inferplan/profiler"
	"inferplan/solver/highs"
)

// The time of a request besides its runs is measured on a server whose device computes nothing.
const (
	emptyRun       = time.Microsecond // too short to sleep for: a sleeper wakes about 60 us late, which would count as dispatch
	requestEvery   = 10 * time.Millisecond
	requestsCount  = 60 // of a model
	requestsWarmup = 10 // of a model, not counted
	requestSLO     = 10 * time.Second
)

// The CPU time that a request costs the front end is measured at this rate of requests, lower for large requests.
const (
	costEvery       = 200 * time.Microsecond
	costValues      = 1 << 27 // input values a second, at most
	costWarmup      = 100     // requests that are not counted; a fifth of all if these are fewer
	costCount       = 2000    // requests, or as many as half a second has
	costMinRequests = 20      // requests, even if they are large
	costBatch       = 64      // largest batch of the device
)

// measureRequests adds to a profile the times that requests take besides their runs: through a client, HTTP on
// loopback and the front end of this machine. Models that have these times, or whose tensors are not known, are left
// out. o names the profile's file, which is also updated.
func measureRequests(ctx context.Context, o *profileOptions, profile *formats.Profile) (*formats.Profile, error) {
	var models []formats.ProfileModel
	for _, m := range profile.Models {
		if (m.RequestUS == 0 || m.RequestCPUUS == 0 || o.force) && len(m.Inputs) > 0 && len(m.Measurements) > 0 {
			models = append(models, m)
		}
	}
	if len(models) == 0 {
		return profile, nil
	}
	times, err := requestTimes(ctx, models)
	if err != nil {
		return profile, fmt.Errorf("measuring what requests take beside their runs: %w", err)
	}
	return profiler.Update(o.outPath, profile, func(p *formats.Profile) error {
		for i, m := range models {
			if k := slices.IndexFunc(p.Models, func(x formats.ProfileModel) bool { return x.Model == m.Model }); k >= 0 {
				p.Models[k].RequestUS, p.Models[k].DispatchUS, p.Models[k].RequestCPUUS = times[i].overhead, times[i].dispatch, times[i].cost
			}
		}
		p.FrontEnd = &formats.FrontEnd{Cores: runtime.GOMAXPROCS(0)}
		return nil
	})
}

// requestTime holds the times that a request for a model takes besides its run: outside the device, on the device
// (with pauses between requests), and of the CPUs of client and front end.
type requestTime struct{ overhead, dispatch, cost document.Micros }

// requestTimes serves models on a device that computes nothing. It sends requests evenly to measure median times, and
// then faster to measure CPU time. The result has, by model, the time besides the run (overhead), the part of a run
// before it begins (dispatch), and the CPU time of client and front end.
func requestTimes(ctx context.Context, models []formats.ProfileModel) (out []requestTime, err error) {
	dir, err := os.MkdirTemp("", "plan-requests-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	empty, err := emptyPlan(ctx, models)
	if err != nil {
		return nil, err
	}
	plan := filepath.Join(dir, "plan.json")
	if _, err := document.WriteFile(plan, empty, document.Force(true)); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	// Serve the plan in this process, and record the runs.
	started, finished := make(chan executor.Addresses, 1), make(chan error, 1)
	record := filepath.Join(dir, "service.json")
	go func() {
		_, err := executor.Serve(ctx, executor.ServeOptions{
			Options: executor.Options{CoreOptions: executor.CoreOptions{Engine: "replay", Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, WorkerOptions: executor.WorkerOptions{ShareCPUs: true}},
			Plan:    plan, HTTP: "127.0.0.1:0", GRPC: executor.AddressOff, Metrics: executor.AddressOff, OIP: oip.Options{MaxBodyBytes: 1 << 30}, Record: record,
			OnReady: func(a executor.Addresses) { started <- a },
		})
		finished <- err
	}()
	var addresses executor.Addresses
	select {
	case addresses = <-started:
	case err := <-finished:
		return nil, err
	}
	url := "http://" + addresses.HTTP

	// Measure latencies with even arrivals, and then CPU times.
	latencies, err := sendEvenly(ctx, url, models)
	for i := 0; err == nil && i < len(models); i++ {
		var cpuTime time.Duration
		cpuTime, err = requestCost(ctx, url, &models[i])
		out = append(out, requestTime{cost: document.Micros(cpuTime)})
	}
	stop()
	if err = errors.Join(err, <-finished); err != nil {
		return nil, err
	}

	// Subtract the times of the runs, which the server has recorded.
	service, err := turn.ReadServiceTimes(record)
	if err != nil {
		return nil, err
	}
	for i := range models {
		runs := service.Runs[i][0]
		runs = runs[:min(len(runs), requestsWarmup+requestsCount)] // the runs of even arrivals, which came first
		if len(latencies[i]) == 0 || len(runs) == 0 {
			return nil, fmt.Errorf("%s: no request was answered", models[i].Model)
		}
		run := report.Median(runs)
		out[i].overhead, out[i].dispatch = max(0, document.Micros(report.Median(latencies[i])-run)), max(0, document.Micros(run-emptyRun))
	}
	return out, nil
}

// sendEvenly sends requests for the models in turn and returns their latencies by model.
func sendEvenly(ctx context.Context, url string, models []formats.ProfileModel) ([][]time.Duration, error) {
	latencies := make([][]time.Duration, len(models))
	cfg := load.Config{URL: url, Warmup: time.Duration(requestsWarmup*len(models)) * requestEvery, OnOutcome: func(o load.Outcome) {
		if o.Reason == "" {
			latencies[o.Model] = append(latencies[o.Model], o.Latency)
		}
	}}
	var list []arrivals.Request
	for _, m := range models {
		cfg.Models = append(cfg.Models, load.Model{Name: m.Model, SLO: requestSLO})
	}
	for i := range (requestsWarmup + requestsCount) * len(models) {
		list = append(list, arrivals.Request{ArrivedAt: time.Duration(i) * requestEvery, Model: int32(i % len(models))})
	}
	_, err := load.Run(ctx, cfg, arrivals.Slice(list))
	return latencies, err
}

// requestCost sends many requests for a model. It returns the CPU time per request of this process, which is client
// and front end. Requests of large inputs are fewer and further apart (costValues input values a second).
func requestCost(ctx context.Context, url string, m *formats.ProfileModel) (time.Duration, error) {
	// Choose the interval and the number of requests by the size of one.
	values := 0.0
	for i := range m.Inputs {
		size := 1.0
		for _, d := range m.Inputs[i].Shape {
			size *= float64(max(1, d))
		}
		values += size
	}
	gap := max(costEvery, time.Duration(values/costValues*float64(time.Second)))
	count := max(costMinRequests, min(costCount, int(time.Second/2/gap)))
	warmup := min(costWarmup, count/5)

	// Note the process's CPU time at the end of the warm-up and at the last answer.
	answered := 0
	var cpuAtWarmup, cpuAtLast time.Duration // CPU time used up to these answers
	cfg := load.Config{URL: url, Models: []load.Model{{Name: m.Model, SLO: requestSLO}}, OnOutcome: func(o load.Outcome) {
		if o.Reason != "" {
			return
		}
		cpuAtLast = cputime.Used()
		if answered++; answered == warmup {
			cpuAtWarmup = cpuAtLast
		}
	}}
	var list []arrivals.Request
	for i := range count {
		list = append(list, arrivals.Request{ArrivedAt: time.Duration(i) * gap})
	}
	if _, err := load.Run(ctx, cfg, arrivals.Slice(list)); err != nil {
		return 0, err
	}
	if answered <= max(warmup, count/2) {
		return 0, fmt.Errorf("%s: %d of %d requests were answered", m.Model, answered, count)
	}
	return (cpuAtLast - cpuAtWarmup) / time.Duration(answered-warmup), nil
}

// emptyPlan returns a plan with all models, whole and with runs of no length, on one device that they share in time.
// Serving it measures what requests take besides their runs.
func emptyPlan(ctx context.Context, models []formats.ProfileModel) (*formats.Plan, error) {
	kind, run := models[0].Measurements[0].Device, formats.Latency{WallUS: document.Micros(emptyRun)}
	profile := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: kind}}}
	for _, m := range models {
		empty := formats.ProfileModel{Model: m.Model, Inputs: m.Inputs, Outputs: m.Outputs, Blocks: []formats.Block{{Name: "all"}}}
		for batch := 1; batch <= costBatch; batch *= 2 {
			empty.Measurements = append(empty.Measurements, formats.Measurement{Device: kind, Share: 1, Batch: batch, WholeModel: &run, Blocks: []formats.Latency{run}})
		}
		profile.Models = append(profile.Models, empty)
	}
	workload, _ := planner.AssumedWorkload(profile, document.SLO{Duration: requestSLO})
	res, err := planner.Solve(ctx, planner.Inputs{Profile: profile, Workload: workload,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: kind, Count: 1, Sharing: formats.SharingTime}}}}, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		return nil, err
	}
	return res.Plan, nil
}
