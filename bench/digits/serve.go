package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
)

// answer is the outcome of a request.
type answer struct {
	arrived time.Duration // since the first request was due
	took    time.Duration
	row     int // of the records
	gear    int
	model   string
	correct bool
	lost    bool
}

// served is a run for real.
type served struct {
	answers  []answer // as they arrived, the lead-in first
	lead     int      // so many belong to the lead-in
	service  *executor.Service
	late     time.Duration // p95 of how late requests were sent
	device   time.Duration // that the device was held by batches behind the lead-in
	cpu      float64       // seconds of CPU time inside the engine, the lead-in included
	switches int64
	ran      []float64 // by stage: mean time of a batch in the engine, ms
}

// A run begins with a lead-in of single requests that is not counted: the first
// runs of a worker are slow.
const (
	leadIn    = 1500 * time.Millisecond
	leadEvery = 50 * time.Millisecond
)

// led puts the lead-in before arrivals.
func led(list []arrivals.Request) (out []arrivals.Request, lead int) {
	for at := time.Duration(0); at < leadIn-5*leadEvery; at += leadEvery {
		out = append(out, arrivals.Request{ArrivedAt: at})
	}
	lead = len(out)
	for _, r := range list {
		r.ArrivedAt += leadIn
		out = append(out, r)
	}
	return out, lead
}

// open starts to serve a plan in a worker process.
func (f *family) open(ctx context.Context, plan *formats.Plan, cpus []int) (*executor.Executor, error) {
	x, err := executor.New(ctx, plan, executor.Options{
		CoreOptions:   executor.CoreOptions{Engine: "onnx", ModelsDir: f.models, RecordService: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		WorkerOptions: executor.WorkerOptions{CPUs: cpus, ShareCPUs: true},
	})
	if err != nil {
		return nil, fmt.Errorf("starting to serve: %w", err)
	}
	if info := x.Models().Models()[0]; len(info.Inputs) != 1 {
		return nil, errors.Join(fmt.Errorf("model %s has %d inputs, expected one", info.Name, len(info.Inputs)), x.Close())
	}
	return x, nil
}

// sending sends requests as they are due, whatever is still under way.
type sending struct {
	f    *family
	x    *executor.Executor
	wait sync.WaitGroup
}

// at sends the sample of an answer when it is due, and returns how late that was.
func (s *sending) at(ctx context.Context, start time.Time, due time.Duration, a *answer) (late time.Duration) {
	time.Sleep(time.Until(start.Add(due)))
	sent := time.Now()
	a.arrived = sent.Sub(start)
	s.wait.Go(func() { s.f.ask(ctx, s.x, s.x.Models().Models()[0], a, sent) })
	return a.arrived - due
}

// serve serves a plan and sends it requests. The samples are rows in turn, each once
// before any comes again.
func (f *family) serve(ctx context.Context, plan *formats.Plan, list []arrivals.Request, rows []int, cpus []int, seed uint64) (*served, error) {
	x, err := f.open(ctx, plan, cpus)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	order := shuffled(rows, len(list), seed)
	out := &served{}
	list, out.lead = led(list)
	out.answers = make([]answer, len(list))
	late := make([]time.Duration, len(list))
	send := sending{f: f, x: x}
	defer send.wait.Wait()
	start := time.Now()
	for i, r := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out.answers[i].row = order[max(0, i-out.lead)]
		late[i] = send.at(ctx, start, r.ArrivedAt, &out.answers[i])
	}
	send.wait.Wait()
	out.service, out.switches = x.Service(), x.Report().Gears.Switches
	for _, m := range x.Report().Gears.Models {
		out.ran = append(out.ran, ms(m.RunningUS.D())/float64(max(1, m.Batches)))
	}
	// What runs used inside the engine, by the workers' own account.
	if out.cpu, err = sumOf(x, "inferplan_worker_cpu_seconds_total", "part", "engine"); err != nil {
		return nil, err
	}
	began := out.answers[out.lead].arrived - out.answers[0].arrived
	for stage := range out.service.Runs {
		for b, runs := range out.service.Runs[stage] {
			for i, d := range runs {
				if out.service.Starts[stage][b][i] >= began {
					out.device += d
				}
			}
		}
	}
	slices.Sort(late)
	out.late = report.Percentile(late, .95)
	return out, nil
}

// sumOf adds up a metric, where a label has a value, if one is named.
func sumOf(x *executor.Executor, name, label, value string) (float64, error) {
	families, err := x.Gatherer().Gather()
	if err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	sum := 0.0
	for _, m := range families {
		if m.GetName() != name {
			continue
		}
		for _, s := range m.Metric {
			if label == "" || slices.ContainsFunc(s.Label, func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value }) {
				sum += s.GetCounter().GetValue() + s.GetGauge().GetValue()
			}
		}
	}
	return sum, nil
}

func (f *family) ask(ctx context.Context, x *executor.Executor, info *oip.ModelInfo, a *answer, sent time.Time) {
	in := &info.Inputs[0]
	req := &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: sent,
		Inputs: []oip.Tensor{{Name: in.Name, Datatype: in.Datatype, Shape: []int64{1, in.Shape[1]}, Data: f.inputs[a.row]}}}
	resp, err := x.Infer(ctx, req)
	a.took = time.Since(sent)
	if err != nil {
		a.lost = true
		return
	}
	a.gear, a.model = int(resp.Params["gear"].(int64)), resp.Params["model"].(string)
	a.correct = best(resp.Outputs[0].Data) == f.labels[a.row]
	resp.Release()
}

// best is the class of the largest score.
func best(scores []byte) int {
	at, most := -1, float32(math.Inf(-1))
	for i := 0; 4*i < len(scores); i++ {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(scores[4*i:])); v > most {
			at, most = i, v
		}
	}
	return at
}

// shuffled are n rows: all of them in a random order, then all again.
func shuffled(rows []int, n int, seed uint64) []int {
	rng := seeded.New(seed, "bench-digits/samples")
	out := make([]int, 0, n)
	turn := slices.Clone(rows)
	for len(out) < n {
		rng.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		out = append(out, turn[:min(len(turn), n-len(out))]...)
	}
	return out
}
