package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/engine"
	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/formats"
)

// executorRatio sets what the executor does for callers that always have a next
// request against a loop that does nothing but run the engine, in turns.
func executorRatio(ctx context.Context, c *check, r *StepResult) error {
	cases := []struct {
		name  string
		batch int
	}{{"squeezenet", 8}, {"resnet50", 1}}
	turns, turn := 5, 2*time.Second
	if c.Quick {
		cases, turns, turn = cases[:1], 2, time.Second
		cases[0].batch = 2
	}
	t := Table{Title: "samples per second; the loop's tensors lie in host memory (copies inside) or on the device", Header: []string{"model", "batch", "executor", "loop, host tensors", "loop, device tensors", "executor/loop"}}
	for _, x := range cases {
		served, host, device, err := c.ratio(ctx, x.name, x.batch, turns, turn)
		if err != nil {
			return fmt.Errorf("%s at batch %d: %w", x.name, x.batch, err)
		}
		t.Rows = append(t.Rows, []string{x.name, fmt.Sprint(x.batch), fmt.Sprintf("%.1f", served), fmt.Sprintf("%.1f", host), fmt.Sprintf("%.1f", device), fmt.Sprintf("%.3f", served/host)})
		r.verdict(fmt.Sprintf("%s at batch %d: executor over loop with host tensors", x.name, x.batch), ">= 0.9", served/host, served >= 0.9*host)
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// ratio measures the executor and two bare loops in turns, samples per second.
func (c *check) ratio(ctx context.Context, name string, batch, turns int, turn time.Duration) (served, host, device float64, err error) {
	paths, err := c.models(ctx, name)
	if err != nil {
		return 0, 0, 0, err
	}
	sub, err := c.whole(ctx, paths[0])
	if err != nil {
		return 0, 0, 0, err
	}
	var unpin func()
	if c.rehearsal() {
		if unpin, err = engine.PinThread(c.dev.CPUs...); err != nil {
			return 0, 0, 0, err
		}
	} else {
		runtime.LockOSThread()
		unpin = runtime.UnlockOSThread
	}
	defer unpin()
	s := *sub
	blk, err := c.eng.Load(ctx, &s, c.dev, engine.Options{Threads: 1})
	if err != nil {
		return 0, 0, 0, err
	}
	defer blk.Close()
	loop := func(hostIO bool) (func() (float64, error), error) {
		b, err := blk.Bind(engine.BindOptions{Batch: batch, HostIO: hostIO})
		if err != nil {
			return nil, err
		}
		for range 3 { // warm up
			if err := b.Run(ctx); err != nil {
				return nil, err
			}
		}
		return func() (float64, error) {
			n := 0
			begin := time.Now()
			for time.Since(begin) < turn {
				if err := b.Run(ctx); err != nil {
					return 0, err
				}
				n++
			}
			return float64(n*batch) / time.Since(begin).Seconds(), nil
		}, nil
	}
	onHost, err := loop(true)
	if err != nil {
		return 0, 0, 0, err
	}
	onDevice, err := loop(false)
	if err != nil {
		return 0, 0, 0, err
	}
	infer, err := onHost()
	if err != nil {
		return 0, 0, 0, err
	}
	plan, err := c.oneStage(name, paths[0], sub, batch, time.Duration(float64(batch)/infer*float64(time.Second)))
	if err != nil {
		return 0, 0, 0, err
	}
	x, err := executor.New(ctx, plan, executor.Options{
		ModelsDir: filepath.Dir(paths[0]), ShareCPUs: true, Command: []string{c.Self, "worker"},
		Log: slog.New(slog.NewTextHandler(c.log(), nil)),
	})
	if err != nil {
		return 0, 0, 0, err
	}
	defer x.Close()
	// Enough callers that the worker always has a batch ahead.
	call := func() (float64, error) { return closedLoop(ctx, x, name, sub, batch, 6, turn) }
	if _, err := call(); err != nil { // warm up
		return 0, 0, 0, err
	}
	for range turns {
		for _, m := range []struct {
			into *float64
			run  func() (float64, error)
		}{{&host, onHost}, {&served, call}, {&device, onDevice}} {
			rate, err := m.run()
			if err != nil {
				return 0, 0, 0, err
			}
			*m.into += rate / float64(turns)
		}
	}
	return served, host, device, nil
}

// closedLoop keeps requests of a whole batch open and counts samples per second.
func closedLoop(ctx context.Context, x *executor.Executor, name string, sub *engine.Submodel, batch, open int, turn time.Duration) (float64, error) {
	data := input(sub.Inputs[0], batch)
	var n atomic.Int64
	errs := make([]error, open)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range open {
		wg.Go(func() {
			shape := sub.Inputs[0].ShapeAt(batch)
			for time.Since(begin) < turn && ctx.Err() == nil {
				req := &oip.Request{Model: name, Received: time.Now(), Batch: batch, Inputs: []oip.Tensor{{Name: sub.Inputs[0].Name, Datatype: oip.FP32, Shape: shape, Data: data}}}
				resp, err := x.Infer(ctx, req)
				if err != nil {
					errs[i] = err
					return
				}
				if resp.Release != nil {
					resp.Release()
				}
				n.Add(int64(batch))
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(begin).Seconds(), errors.Join(append(errs, ctx.Err())...)
}

// oneStage is a plan of one model whole on one device, at one batch size.
func (c *check) oneStage(name, path string, sub *engine.Submodel, batch int, infer time.Duration) (*formats.Plan, error) {
	sum, err := formats.Digest(path)
	if err != nil {
		return nil, err
	}
	us := func(d time.Duration) formats.Micros { return formats.Micros(d.Truncate(time.Nanosecond)) }
	times := make([]formats.Micros, batch)
	for b := range times {
		times[b] = us(max(time.Microsecond, infer*time.Duration(b+1)/time.Duration(batch)))
	}
	rate := float64(batch) / infer.Seconds()
	pool := formats.Pool{Device: c.kind(), Count: 1, MaxShares: 1, PerNode: 1}
	if c.rehearsal() {
		pool.MaxShares, pool.Sharing = 0, formats.SharingTime
	}
	const slo = 30 * time.Second // nothing is dropped: throughput is asked for
	return &formats.Plan{
		Format: formats.FormatPlan, Kind: formats.PlanPool, StoppedBy: "proved", Objective: formats.Objective{Name: "throughput", Value: rate}, Pools: []formats.Pool{pool},
		Models: []formats.PlanModel{{
			Model: name, SHA256: sum, SLOUS: us(slo), Percentile: "p99", Weight: 1, RPS: rate, NumBlocks: 1,
			Pipelines: []formats.Pipeline{{Batch: batch, RPS: rate, LatencyUS: times[batch-1], Stages: []formats.Stage{{
				Blocks: [2]int{0, 1}, Device: c.kind(), Share: 1, Replicas: 1, GPUs: 1, RPS: rate, InferUS: times,
				Placement: []formats.Placement{{First: 0, PerDevice: 1, Replicas: 1}},
			}}}},
		}},
		Policy: formats.PolicySpec{Name: "reserve", Params: map[string]float64{"guard_us": float64(slo/time.Microsecond) / 5}},
	}, nil
}
