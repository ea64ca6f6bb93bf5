package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/ppocr"
	"inferplan/bench/served"
	"inferplan/engine"
	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/sim"
	"inferplan/testkit/stepstest"
)

const (
	imageWidth    = 320
	imageHeight   = 160
	sloFactor     = 6               // times what a request takes alone
	measureBudget = 2 * time.Minute // time for measuring the models
)

// ocrPolicies are held against each other on the real pipeline, the best first.
var ocrPolicies = []string{"feas", "nexus", "naive"}

// tie is a difference of goodput that runs of a minute or two do not resolve.
const tie = .01

// measureOCR serves a real pipeline under policies at shares of its capacity, and simulates each run with its recorded times.
func (b *bench) measureOCR(r *instrument.Run, t *instrument.Table) error {
	dir, err := os.MkdirTemp("", "bench-pard-ocr-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o, err := newOCR(r.Ctx, dir)
	if err != nil {
		return err
	}
	capacity, err := o.capacity(r, b.length)
	if err != nil {
		return err
	}
	t.Columns = []string{"load", "policy", "in time", "simulated"}
	t.Note("The highest constant rate with 99 %% in time is %.2f rps, naive.", capacity)
	for _, load := range []float64{.8, 1.2, 2} {
		served, simulated := map[string]float64{}, map[string]float64{}
		for _, policy := range ocrPolicies {
			run, err := o.serve(r.Ctx, policy, drawArrivals(load*capacity, b.length, 2))
			if err != nil {
				return err
			}
			served[policy] = run.goodput()
			if simulated[policy], err = o.simulated(r.Ctx, run); err != nil {
				return err
			}
			t.Add(fmt.Sprintf("%.1f", load), policy, fmt.Sprintf("%.4f", served[policy]), fmt.Sprintf("%.4f", simulated[policy]))
		}
		name, source := fmt.Sprintf("OCR pipeline at %.1fx: ", load), b.machineSource("PP-OCRv4")
		for _, policy := range ocrPolicies {
			r.AtMost(name+"goodput of "+policy+", simulated with the recorded times, difference in points of the offered load", source, 5, "points", 100*math.Abs(simulated[policy]-served[policy]))
		}
		r.Exactly(name+"policies stand in the same order in both, less than a point apart counts as a tie", source, 1, "", sameOrder(served, simulated))
	}
	return nil
}

// machineSource says what ran on this machine.
func (b *bench) machineSource(what string) string {
	return fmt.Sprintf("%s on this machine, %d processors, runs of %v; load average at the end %s", what, runtime.NumCPU(), b.length, served.LoadAverage())
}

// sameOrder returns 1 if two goodputs by policy stand in the same order, but for ties; else 0.
func sameOrder(served, simulated map[string]float64) float64 {
	for i, policy := range ocrPolicies {
		for _, other := range ocrPolicies[:i] {
			real, virtual := served[policy]-served[other], simulated[policy]-simulated[other]
			if real*virtual < 0 && max(math.Abs(real), math.Abs(virtual)) >= tie {
				return 0
			}
		}
	}
	return 1
}

// ocr is a real pipeline on this machine: a detector of text lines, a classifier of their orientation, a recogniser (PP-OCRv4), in a worker each.
type ocr struct {
	dir    string
	plan   *formats.Plan
	images [][]byte // lines of text, some of them upside down
}

// newOCR writes, measures and plans the models, and draws images.
func newOCR(ctx context.Context, dir string) (*ocr, error) {
	profile, err := ppocr.Measure(ctx, dir, imageWidth, imageHeight, measureBudget)
	if err != nil {
		return nil, err
	}
	app := formats.Application{Name: "ocr", SLO: document.SLO{Factor: sloFactor}, Modules: []formats.Module{
		{Name: "detect", Model: "ocr_det", Pre: "ocr-image", Post: "ocr-box"},
		{Name: "orient", Model: "ocr_cls", Predecessors: []string{"detect"}, Pre: "ocr-line"},
		{Name: "read", Model: "ocr_rec", Predecessors: []string{"detect", "orient"}, Pre: "ocr-upright", Post: "ocr-text"}}}
	in := documents(app, 3)
	in.Profile, in.Cluster.Pools[0].Device = profile, profile.Devices[0].Device
	o := &ocr{dir: dir}
	if o.plan, err = solved(ctx, in, nil); err != nil {
		return nil, fmt.Errorf("planning the pipeline: %w", err)
	}
	rng := seeded.New(1, "bench-pard/lines")
	for i := range 16 {
		text := fmt.Sprintf("line %d of %d", rng.IntN(1000), 1000+rng.IntN(9000))
		image, err := stepstest.Line(text, imageWidth, imageHeight, 30+rng.IntN(20), 70+rng.IntN(40), 28, i%4 == 3)
		if err != nil {
			return nil, err
		}
		o.images = append(o.images, image)
	}
	return o, nil
}

// ocrRequest is a request of a real run with its outcome.
type ocrRequest struct {
	at, took time.Duration
	served   bool
}

// ocrRun is a run of the pipeline under a policy.
type ocrRun struct {
	requests []ocrRequest
	service  *turn.ServiceTimes
	policy   formats.PolicySpec
	slo      time.Duration
}

// Before what is counted come single requests: the first runs of a worker are slow.
const (
	leadIn    = 3 * time.Second
	leadEvery = 300 * time.Millisecond
)

// serve serves arrivals under a policy, whatever is still under way when a request is due.
func (o *ocr) serve(ctx context.Context, policy string, due []time.Duration) (*ocrRun, error) {
	plan := *o.plan
	if plan.Policy.Name != policy {
		plan.Policy = formats.PolicySpec{Name: policy}
	}
	cpus, err := engine.CPUs()
	if err != nil {
		return nil, err
	}
	x, err := served.Execute(ctx, &plan, o.dir, executor.WorkerOptions{CPUs: cpus, ShareCPUs: true})
	if err != nil {
		return nil, err
	}
	run := &ocrRun{policy: x.PolicySpec(), slo: formats.FlowOf(&plan).Applications[0].SLOUS.D()}
	var moments []time.Duration
	for at := time.Duration(0); at < leadIn-leadEvery; at += leadEvery {
		moments = append(moments, at)
	}
	for _, at := range due {
		moments = append(moments, leadIn+at)
	}
	for _, at := range moments {
		run.requests = append(run.requests, ocrRequest{at: at})
	}
	info := x.Models().Models()[0]
	// What is late an SLO behind the last request is late whenever it comes.
	answering, stop := context.WithTimeout(ctx, moments[len(moments)-1]+run.slo)
	defer stop()
	_, err = served.Pace(ctx, moments, func(i int, sent time.Time) {
		resp, err := x.Infer(answering, &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: sent,
			Inputs: []oip.Tensor{{Name: info.Inputs[0].Name, Datatype: oip.Uint8, Shape: []int64{1, imageHeight, imageWidth, 3}, Data: o.images[i%len(o.images)]}}})
		run.requests[i].took, run.requests[i].served = time.Since(sent), err == nil
		if err == nil {
			resp.Release()
		}
	})
	run.service = x.Service()
	return run, errors.Join(err, x.Close())
}

// goodput returns the share of the requests behind the lead-in that were answered in time.
func (run *ocrRun) goodput() float64 {
	counted := run.requests[slices.IndexFunc(run.requests, func(q ocrRequest) bool { return q.at >= leadIn }):]
	good := 0
	for _, q := range counted {
		if q.served && q.took <= run.slo {
			good++
		}
	}
	return float64(good) / float64(len(counted))
}

// simulated returns the share in virtual time: the same requests, as the policy heard of them, and the times that runs took at the time.
func (o *ocr) simulated(ctx context.Context, run *ocrRun) (float64, error) {
	var list []arrivals.Request
	for i, at := range run.service.Arrivals {
		list = append(list, arrivals.Request{ArrivedAt: at + run.service.ArrivalDelays[i]})
	}
	slices.SortFunc(list, func(a, b arrivals.Request) int { return int(a.ArrivedAt - b.ArrivedAt) })
	plan := *o.plan
	plan.Policy = run.policy
	flow, err := simulate(ctx, &plan, arrivals.Slice(list), func(cfg *sim.Config) (err error) {
		cfg.Egress, cfg.Warmup = run.service.Egress, leadIn-leadEvery/2
		cfg.Service, err = sim.RecordedService(cfg.Tables, sim.Samples{Runs: run.service.Runs, Starts: run.service.Starts, ReportDelays: run.service.ReportDelays}, false, 1)
		return err
	})
	if err != nil {
		return 0, err
	}
	return float64(flow.Good) / float64(flow.Requests), nil
}

// drawArrivals draws arrivals at a rate.
func drawArrivals(rate float64, length time.Duration, seed uint64) (due []time.Duration) {
	rng := seeded.New(seed, "bench-pard/ocr")
	for at := time.Duration(0); ; {
		if at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)); at >= length {
			return due
		}
		due = append(due, at)
	}
}

// capacity returns the highest constant rate with 99 % in time under the naive policy, to a twentieth.
func (o *ocr) capacity(r *instrument.Run, length time.Duration) (float64, error) {
	low, high := 0., o.plan.Objective.Value
	for step := 0; step < 7 && (low == 0 || high-low > .05*low); step++ {
		rate := (low + high) / 2
		run, err := o.serve(r.Ctx, "naive", drawArrivals(rate, length, 1))
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(r.Log, "capacity: %.2f rps, %.1f %% in time\n", rate, 100*run.goodput())
		if run.goodput() >= .99 {
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
