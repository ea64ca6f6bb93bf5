package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"inferplan/bench/ppocr"
	"inferplan/engine"
	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/solver/highs"
	"inferplan/testkit/stepstest"
)

// The size of the images that the real pipeline reads.
const (
	imageWidth  = 320
	imageHeight = 160
)

// ocr is a real pipeline on this machine: a detector of text lines, a classifier of
// their orientation, a recogniser (PP-OCRv4), in a worker each.
type ocr struct {
	dir     string
	engine  string // onnx, or replay: batches last as planned
	profile *formats.Profile
	plan    *formats.Plan
	images  [][]byte
	text    []string
	keys    []string
}

// newOCR writes and measures the models, and plans them with an SLO that is so many
// times what a request takes alone.
func newOCR(ctx context.Context, dir, engine string, times float64, budget time.Duration) (*ocr, error) {
	o := &ocr{dir: dir, engine: engine}
	var err error
	if o.keys, err = stepstest.Keys(); err != nil {
		return nil, err
	}
	if o.profile, err = ppocr.Measure(ctx, dir, imageWidth, imageHeight, budget); err != nil {
		return nil, err
	}
	if engine == "replay" {
		byCPU(o.profile)
	}
	if o.plan, err = o.solve(ctx, times); err != nil {
		return nil, err
	}
	return o, o.draw()
}

// byCPU takes CPU times for times: what a batch takes where nothing else runs.
func byCPU(p *formats.Profile) {
	for m := range p.Models {
		for i := range p.Models[m].Measurements {
			x := &p.Models[m].Measurements[i]
			x.WholeModel.WallUS = x.WholeModel.CPUUS
			for b := range x.Blocks {
				x.Blocks[b].WallUS = x.Blocks[b].CPUUS
			}
		}
	}
}

// solve plans one worker for each model.
func (o *ocr) solve(ctx context.Context, times float64) (*formats.Plan, error) {
	app := formats.Application{Name: "ocr", SLO: document.SLO{Factor: times}, Modules: []formats.Module{
		{Name: "detect", Model: "ocr_det", Pre: "ocr-image", Post: "ocr-box"},
		{Name: "orient", Model: "ocr_cls", Predecessors: []string{"detect"}, Pre: "ocr-line"},
		{Name: "read", Model: "ocr_rec", Predecessors: []string{"detect", "orient"}, Pre: "ocr-upright", Post: "ocr-text"}}}
	res, err := planner.Solve(ctx, planner.Inputs{Profile: o.profile,
		Cluster:  &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: o.profile.Devices[0].Device, Count: 3}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{app}}}, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		return nil, fmt.Errorf("planning the pipeline: %w", err)
	}
	return res.Plan, nil
}

// draw draws lines of text, some of them upside down.
func (o *ocr) draw() error {
	rng := seeded.New(1, "bench-pard/lines")
	for i := range 16 {
		text := fmt.Sprintf("line %d of %d", rng.IntN(1000), 1000+rng.IntN(9000))
		img, err := stepstest.Line(text, imageWidth, imageHeight, 30+rng.IntN(20), 70+rng.IntN(40), 28, i%4 == 3)
		if err != nil {
			return err
		}
		o.images, o.text = append(o.images, img), append(o.text, text)
	}
	return nil
}

// asked is a request of a real run with its outcome.
type asked struct {
	at, took time.Duration
	served   bool
	right    bool
}

// realRun is a run of the pipeline under a policy.
type realRun struct {
	list    []asked
	service *executor.Service
	spec    formats.PolicySpec
	slo     time.Duration
}

// Before what is counted come single requests: the first runs of a worker are slow.
const (
	leadIn    = 3 * time.Second
	leadEvery = 300 * time.Millisecond
)

// serve serves arrivals under a policy, whatever is still under way when a request
// is due.
func (o *ocr) serve(ctx context.Context, policy string, due []time.Duration) (*realRun, error) {
	plan := *o.plan
	cpus, err := engine.CPUs()
	if err != nil {
		return nil, err
	}
	x, err := executor.New(ctx, &plan, executor.Options{
		CoreOptions:   executor.CoreOptions{Engine: o.engine, ModelsDir: o.dir, Policy: policy, RecordService: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		WorkerOptions: executor.WorkerOptions{CPUs: cpus, ShareCPUs: true},
	})
	if err != nil {
		return nil, fmt.Errorf("starting to serve: %w", err)
	}
	out := &realRun{spec: x.PolicySpec(), slo: formats.FlowOf(&plan).Applications[0].SLOUS.D()}
	for at := time.Duration(0); at < leadIn-leadEvery; at += leadEvery {
		out.list = append(out.list, asked{at: at})
	}
	for _, at := range due {
		out.list = append(out.list, asked{at: leadIn + at})
	}
	info, start := x.Models().Models()[0], time.Now()
	var wg sync.WaitGroup
	for i := range out.list {
		if ctx.Err() != nil {
			break
		}
		a := &out.list[i]
		time.Sleep(time.Until(start.Add(a.at)))
		wg.Go(func() { o.ask(ctx, x, info, a, i%len(o.images)) })
	}
	// What is late by now is late whenever it comes.
	time.Sleep(out.slo)
	out.service = x.Service()
	err = x.Close()
	wg.Wait()
	return out, errors.Join(err, ctx.Err())
}

func (o *ocr) ask(ctx context.Context, x *executor.Executor, info *oip.ModelInfo, a *asked, i int) {
	sent := time.Now()
	resp, err := x.Infer(ctx, &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: sent,
		Inputs: []oip.Tensor{{Name: info.Inputs[0].Name, Datatype: oip.Uint8, Shape: []int64{1, imageHeight, imageWidth, 3}, Data: o.images[i]}}})
	a.took = time.Since(sent)
	if err == nil {
		a.served, a.right = true, stepstest.Spell(o.keys, resp.Outputs[0].Data) == o.text[i]
		resp.Release()
	}
}

// counted are the requests behind the lead-in.
func (r *realRun) counted() []asked {
	return r.list[slices.IndexFunc(r.list, func(a asked) bool { return a.at >= leadIn }):]
}

// good is the share of the requests that were answered in time, and of those that
// were read right.
func (r *realRun) good() (share, right float64) {
	list := r.counted()
	n, ok := 0, 0
	for _, a := range list {
		if a.served && a.took <= r.slo {
			n++
			if a.right {
				ok++
			}
		}
	}
	return float64(n) / float64(len(list)), float64(ok) / float64(max(1, n))
}

// again is the share in virtual time: the same requests, as the policy heard of
// them, and the times that runs took at the time.
func (o *ocr) again(ctx context.Context, r *realRun) (float64, error) {
	t, err := policies.Compile(o.plan)
	if err != nil {
		return 0, err
	}
	pol, err := policies.New(r.spec, t)
	if err != nil {
		return 0, err
	}
	service, err := sim.RecordedService(t, sim.Samples{Runs: r.service.Runs, Starts: r.service.Starts, ReportDelays: r.service.ReportDelays}, false, 1)
	if err != nil {
		return 0, err
	}
	var list []arrivals.Request
	for i, at := range r.service.Arrivals {
		list = append(list, arrivals.Request{ArrivedAt: at + r.service.ArrivalDelays[i]})
	}
	slices.SortFunc(list, func(a, b arrivals.Request) int { return int(a.ArrivedAt - b.ArrivedAt) })
	cfg := sim.Config{Tables: t, Policy: pol, Source: arrivals.Slice(list), Control: policies.NewControl(t), Service: service, Egress: r.service.Egress,
		Warmup: leadIn - leadEvery/2, NoReport: true}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("simulating: %w", err)
	}
	return float64(res.Flow.Good) / float64(res.Flow.Requests), nil
}

// due draws arrivals at a rate.
func due(rate float64, length time.Duration, seed uint64) []time.Duration {
	rng := seeded.New(seed, "bench-pard/ocr")
	var out []time.Duration
	for at := time.Duration(0); ; {
		if at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)); at >= length {
			return out
		}
		out = append(out, at)
	}
}

// capacity is the highest constant rate with 99 % in time under the naive policy, to
// a twentieth.
func (o *ocr) capacity(ctx context.Context, length time.Duration) (float64, error) {
	low, high := 0., o.plan.Objective.Value
	for step := 0; step < 7 && (low == 0 || high-low > .05*low); step++ {
		rate := (low + high) / 2
		r, err := o.serve(ctx, "naive", due(rate, length, 1))
		if err != nil {
			return 0, err
		}
		share, _ := r.good()
		fmt.Fprintf(os.Stderr, "capacity: %.2f rps, %.1f %% in time\n", rate, 100*share)
		if share >= .99 {
			low = rate
		} else {
			high = rate
		}
	}
	if low == 0 {
		return 0, errors.New("the pipeline keeps its SLO at no rate that was tried: the machine is too busy")
	}
	return low, nil
}
