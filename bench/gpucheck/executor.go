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
	"inferplan/formats/document"
)

// executorRatio sets what the executor does for callers that always have a next
// request against a loop that does nothing but run the engine, in turns.
func executorRatio(ctx context.Context, c *check, r *StepResult) error {
	cases := []struct {
		name  string
		batch int
	}{{"squeezenet", 8}, {"resnet50", 1}}
	turns, turn := 4, 1500*time.Millisecond
	if c.Quick {
		cases, turns, turn = cases[:1], 2, time.Second
		cases[0].batch = 2
	}
	for _, x := range cases {
		verdict := fmt.Sprintf("%s at batch %d: executor over loop with host tensors", x.name, x.batch)
		if r.judged(verdict) {
			continue
		}
		m, err := c.ratio(ctx, x.name, x.batch, turns, turn)
		if err != nil {
			return fmt.Errorf("%s at batch %d: %w", x.name, x.batch, err)
		}
		t := r.table("samples per second; the loop's tensors lie in the host's locked memory, as a worker's do (copies inside), or on the device", "model", "batch", "executor", "loop, host tensors", "loop, device tensors", "executor/loop", "executor/loop on the device")
		t.Rows = append(t.Rows, []string{x.name, fmt.Sprint(x.batch), fmt.Sprintf("%.1f", m.served), fmt.Sprintf("%.1f", m.host), fmt.Sprintf("%.1f", m.device), fmt.Sprintf("%.3f", m.served/m.host), fmt.Sprintf("%.3f", m.served/m.device)})
		r.verdict(verdict, ">= 0.9", m.served/m.host, m.served >= 0.9*m.host)
		r.verdict(fmt.Sprintf("%s at batch %d: served answers against the loop's", x.name, x.batch), "<= 1e-4", m.differs, m.differs <= 1e-4)
		if err := c.keep(r); err != nil {
			return err
		}
	}
	return nil
}

// ratios are samples per second of the executor and of two bare loops, and how
// far the executor's answers are from the loop's.
type ratios struct{ served, host, device, differs float64 }

// ratio measures the executor and two bare loops in turns, samples per second.
func (c *check) ratio(ctx context.Context, name string, batch, turns int, turn time.Duration) (r ratios, err error) {
	path, sub, err := c.model(ctx, name)
	if err != nil {
		return r, err
	}
	var unpin func()
	if c.rehearsal() {
		if unpin, err = engine.PinThread(c.dev.CPUs...); err != nil {
			return r, err
		}
	} else {
		runtime.LockOSThread()
		unpin = runtime.UnlockOSThread
	}
	defer unpin()
	s := *sub
	blk, err := c.eng.Load(ctx, &s, c.dev, engine.Options{Threads: 1})
	if err != nil {
		return r, err
	}
	defer blk.Close()
	hostBound, free, err := c.hostBinding(blk, batch)
	if err != nil {
		return r, err
	}
	defer free()
	defer hostBound.Close()
	for _, t := range hostBound.Inputs() {
		copy(t.Bytes(), input(t.Spec(), batch))
	}
	onHost, err := bareLoop(ctx, hostBound, batch, turn)
	if err != nil {
		return r, err
	}
	deviceBound, err := blk.Bind(engine.BindOptions{Batch: batch})
	if err != nil {
		return r, err
	}
	onDevice, err := bareLoop(ctx, deviceBound, batch, turn)
	if err != nil {
		return r, err
	}
	infer, err := onHost()
	if err != nil {
		return r, err
	}
	plan, err := c.oneStage(name, path, sub, batch, time.Duration(float64(batch)/infer*float64(time.Second)))
	if err != nil {
		return r, err
	}
	x, err := executor.New(ctx, plan, executor.Options{
		CoreOptions:   executor.CoreOptions{ModelsDir: filepath.Dir(path), Log: slog.New(slog.NewTextHandler(c.log(), nil))},
		WorkerOptions: executor.WorkerOptions{ShareCPUs: true, Command: []string{c.Self, "worker"}},
	})
	if err != nil {
		return r, err
	}
	defer x.Close()
	if r.differs, err = servedAnswer(ctx, x, name, sub, batch, hostBound.Outputs()); err != nil {
		return r, err
	}
	// Enough callers that the worker always has a batch ahead.
	call := func() (float64, error) { return closedLoop(ctx, x, name, sub, batch, 6, turn) }
	if _, err := call(); err != nil { // warm up
		return r, err
	}
	for range turns {
		for _, m := range []struct {
			into *float64
			run  func() (float64, error)
		}{{&r.host, onHost}, {&r.served, call}, {&r.device, onDevice}} {
			rate, err := m.run()
			if err != nil {
				return r, err
			}
			*m.into += rate / float64(turns)
		}
	}
	return r, nil
}

// bareLoop warms a binding up, and returns what runs it for a turn: samples per second.
func bareLoop(ctx context.Context, b engine.Binding, batch int, turn time.Duration) (func() (float64, error), error) {
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

// servedAnswer sends one request and returns how far its answer is from what stands in
// want.
func servedAnswer(ctx context.Context, x *executor.Executor, name string, sub *engine.Submodel, batch int, want []engine.Tensor) (float64, error) {
	resp, err := x.Infer(ctx, request(name, sub, batch, input(sub.Inputs[0], batch)))
	if err != nil {
		return 0, err
	}
	if resp.Release != nil {
		defer resp.Release()
	}
	if len(resp.Outputs) != len(want) {
		return 0, fmt.Errorf("%d outputs, expected %d", len(resp.Outputs), len(want))
	}
	var got, expected [][]float32
	for i := range want {
		got, expected = append(got, float32s(resp.Outputs[i].Data)), append(expected, float32s(want[i].Bytes()))
		if len(got[i]) != len(expected[i]) {
			return 0, fmt.Errorf("output %d has %d values, expected %d", i, len(got[i]), len(expected[i]))
		}
	}
	worst, _, _, _ := difference(expected, got, batch)
	return worst, nil
}

// request is one of a whole batch.
func request(name string, sub *engine.Submodel, batch int, data []byte) *oip.Request {
	in := sub.Inputs[0]
	return &oip.Request{Model: name, Received: time.Now(), Batch: batch, Inputs: []oip.Tensor{{Name: in.Name, Datatype: oip.FP32, Shape: in.ShapeAt(batch), Data: data}}}
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
			for time.Since(begin) < turn && ctx.Err() == nil {
				resp, err := x.Infer(ctx, request(name, sub, batch, data))
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
	sum, err := document.Digest(path)
	if err != nil {
		return nil, err
	}
	us := func(d time.Duration) document.Micros { return document.Micros(d.Truncate(time.Nanosecond)) }
	// Requests are whole batches. All sizes take the same, so that the worker makes
	// one ready: each costs a session on a GPU.
	times := make([]document.Micros, batch)
	for b := range times {
		times[b] = us(max(time.Microsecond, infer))
	}
	rate := float64(batch) / infer.Seconds()
	pool := formats.Pool{Device: c.kind(), Count: 1, MaxShares: 1, PerNode: 1}
	if c.rehearsal() {
		pool.MaxShares, pool.Sharing = 0, formats.SharingTime
	}
	const slo = 30 * time.Second // nothing is dropped: throughput is asked for
	return &formats.Plan{
		Format: formats.FormatPlan, Kind: formats.PlanPool, StoppedBy: "proved", Objective: formats.Objective{Name: "throughput", Value: rate}, Pools: []formats.Pool{pool},
		Deployment: []formats.Deployed{{
			Model: name, SHA256: sum, NumBlocks: 1,
			Pipelines: []formats.Pipeline{{Batch: batch, RPS: rate, LatencyUS: times[batch-1], Stages: []formats.Stage{{
				Blocks: [2]int{0, 1}, Device: c.kind(), Share: 1, Replicas: 1, GPUs: 1, RPS: rate, InferUS: times,
				Placement: []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 1}},
			}}}}}},
		Section: &formats.PoolPlan{Models: []formats.Served{{Model: name, SLOUS: us(slo), Percentile: "p99", Weight: 1, RPS: rate}}},
		Policy:  formats.PolicySpec{Name: "reserve", Params: map[string]float64{"guard_us": float64(slo/time.Microsecond) / 5}},
	}, nil
}
