package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/bench/served"
	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/sim"
)

// answer is the outcome of a request.
type answer struct {
	arrived time.Duration // since the first request was due
	took    time.Duration
	row     int // of the records
	gear    int
	correct bool
	lost    bool
}

// run is a plan served on requests.
type run struct {
	answers  []answer // as they arrived, the lead-in first
	lead     int      // so many belong to the lead-in
	service  *turn.ServiceTimes
	device   time.Duration // that the device was held by batches behind the lead-in
	switches int64
}

// A run begins with a lead-in of single requests that is not counted: the first
// runs of a worker are slow.
const (
	leadIn    = 1500 * time.Millisecond
	leadEvery = 50 * time.Millisecond
	leadCount = 25
)

// poisson draws Poisson arrivals at rates, second by second, behind the lead-in.
func poisson(rates []float64, seed uint64) (moments []time.Duration) {
	for i := range leadCount {
		moments = append(moments, time.Duration(i)*leadEvery)
	}
	source := arrivals.PoissonOf(rates, seeded.New(seed, "bench-digits/arrivals"))
	for r := (arrivals.Request{}); source.Next(&r); {
		moments = append(moments, leadIn+r.ArrivedAt)
	}
	return moments
}

// shuffled returns n rows: all of them in a random order, then all again.
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

// open starts to serve a plan in a worker process.
func (f *family) open(ctx context.Context, plan *formats.Plan) (*executor.Executor, error) {
	return served.Execute(ctx, plan, f.models, executor.WorkerOptions{ShareCPUs: true})
}

// serve serves a plan and sends it requests, with the held-out samples in turn, each once before any comes again.
func (f *family) serve(ctx context.Context, plan *formats.Plan, moments []time.Duration, seed uint64) (*run, error) {
	x, err := f.open(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	out := &run{lead: leadCount, answers: make([]answer, len(moments))}
	order := shuffled(f.heldOut, len(moments)-leadCount, seed)
	began, err := served.Pace(ctx, moments, func(i int, sent time.Time) { f.ask(ctx, x, &out.answers[i], order[max(0, i-leadCount)], sent) })
	if err != nil {
		return nil, err
	}
	for i, at := range began {
		out.answers[i].arrived = at
	}
	out.service, out.switches = x.Service(), x.Report().Gears.Switches
	counted := out.answers[out.lead].arrived - out.answers[0].arrived // as the service counts, from the first request
	for stage := range out.service.Starts {
		for b, starts := range out.service.Starts[stage] {
			for k, at := range starts {
				if at >= counted {
					out.device += out.service.Runs[stage][b][k]
				}
			}
		}
	}
	return out, nil
}

// ask asks for the class of a row's sample.
func (f *family) ask(ctx context.Context, x *executor.Executor, a *answer, row int, sent time.Time) {
	info := x.Models().Models()[0]
	in := &info.Inputs[0]
	resp, err := x.Infer(ctx, &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: sent,
		Inputs: []oip.Tensor{{Name: in.Name, Datatype: in.Datatype, Shape: []int64{1, in.Shape[1]}, Data: f.inputs[row]}}})
	a.took, a.row = time.Since(sent), row
	if err != nil {
		a.lost = true
		return
	}
	defer resp.Release()
	a.gear = int(resp.Params["gear"].(int64))
	class, largest := -1, float32(math.Inf(-1))
	for i := 0; 4*i < len(resp.Outputs[0].Data); i++ {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(resp.Outputs[0].Data[4*i:])); v > largest {
			class, largest = i, v
		}
	}
	a.correct = class == f.labels[row]
}

// useRows gives tables the records of the rows that requests carry, in their order, so that the simulator's request i has the answers of
// row rows[i].
func (f *family) useRows(t *policy.Tables, rows []int) {
	g := *policygear.TablesOf(t)
	g.Records = policygear.SampleRecords{Samples: len(rows)}
	for p, name := range g.PipelineModels {
		m := f.recordsOf(name)
		levels, correct := make([]uint8, len(rows)), make([]bool, len(rows))
		for i, row := range rows {
			levels[i], correct[i] = uint8(g.Level(int32(p), m.Certainty[row])), m.Correct[row] == '1'
		}
		g.Records.Levels, g.Records.Correct = append(g.Records.Levels, levels), append(g.Records.Correct, correct)
	}
	t.KindTables = &g
}

// replay returns p95 of a run again in virtual time. With its recorded times, the policy hears of requests when it did, and batches take
// the times of their moments; else both are as planned.
func (f *family) replay(ctx context.Context, plan *formats.Plan, r *run, recorded bool) (time.Duration, error) {
	var list []arrivals.Request
	var rows []int
	arrivedAt := map[time.Duration]time.Duration{} // since the first request, by when the policy hears of it
	first, s := r.answers[0].arrived, r.service
	var times *sim.Samples
	if recorded {
		row := map[time.Duration]int{}
		for _, a := range r.answers {
			row[a.arrived-first] = a.row
		}
		var last time.Duration
		for i, arrived := range s.Arrivals {
			at := max(s.FirstArrival+arrived+s.ArrivalDelays[i], last+1) // the simulator hears of one at a time
			n, ok := row[arrived]
			if !ok {
				return 0, fmt.Errorf("the server knows of a request at %v that nobody sent", arrived)
			}
			list, rows, arrivedAt[at], last = append(list, arrivals.Request{ArrivedAt: at}), append(rows, n), arrived, at
		}
		times = &sim.Samples{Runs: s.Runs, Starts: s.Starts}
	} else {
		for _, a := range r.answers {
			at := a.arrived - first
			list, rows, arrivedAt[at] = append(list, arrivals.Request{ArrivedAt: at}), append(rows, a.row), at
		}
	}
	counted := r.answers[r.lead].arrived - first
	var latencies []time.Duration
	_, err := served.Replay(ctx, plan, list, times, func(t *policy.Tables, c *sim.Config) error {
		f.useRows(t, rows)
		offset := time.Duration(0)
		if recorded {
			c.Egress, offset = s.Egress, s.FirstArrival
		}
		c.OnCompleted = func(heard, answered time.Duration) {
			if arrived := arrivedAt[heard]; arrived >= counted {
				latencies = append(latencies, answered-offset-arrived)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return report.PercentileReordering(latencies, .95), nil
}
