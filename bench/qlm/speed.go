package main

import (
	"context"
	"fmt"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/instance"
	"inferplan/bench/table"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/balance"
	"inferplan/sim"
	"inferplan/sim/kernel"
)

// fast holds the costs of a run of many instances.
type fast struct {
	Requests, Events int64
	CPU, Bare        float64 // seconds: of the run, and of a heap with as many events
}

// equals is a fleet of instances of Vicuna-13B.
func equals(instances int) (*policy.Tables, error) {
	m := instance.Vicuna13B
	server := formats.LLMInstance{Device: "A100", TensorParallel: 1, Iteration: m.Iteration, KVTokens: m.KVTokens, KVSource: formats.KVMeasured, BlockTokens: 16}
	plan := &formats.QueuePlan{
		Classes: []formats.QueueClass{{Served: formats.Served{Model: "vicuna", SLOUS: document.Micros(time.Minute)}, Figure: formats.FigureE2E, PromptMean: 500, OutputMean: 200}},
		Models:  []formats.LLMProfile{{Model: "vicuna", WeightBytes: 26e9, KVBytesPerToken: m.TokenBytes, Instances: []formats.LLMInstance{server}}},
	}
	for d := range instances {
		plan.Instances = append(plan.Instances, formats.QueueInstance{Device: "A100", FirstDevice: d, TensorParallel: 1, Model: "vicuna", Models: []string{"vicuna"}, Sequences: []int{64}, TokenBudget: 2048})
	}
	t := &policy.Tables{Models: []policy.Model{{Name: "vicuna", SLO: time.Minute}}, Kinds: []string{"A100"}, KindCounts: []int32{int32(instances)}}
	return t, t.AddInstances(plan, []formats.Pool{{Device: "A100", Count: instances}})
}

// measureFast runs some thousand requests on a fleet, and a bare heap, in turns. The least of
// three counts.
func measureFast(ctx context.Context, instances int) (fast, error) {
	t, err := equals(instances)
	if err != nil {
		return fast{}, err
	}
	rng, at := seeded.New(1, "speed"), 0.0
	list := make([]arrivals.Request, 20000)
	for i := range list {
		at += rng.ExpFloat64() / (2.5 * float64(instances))
		list[i] = arrivals.Request{ArrivedAt: time.Duration(at * 1e9), PromptTokens: 1 + rng.Int32N(1000), OutputTokens: 1 + rng.Int32N(400)}
	}
	out := fast{Requests: int64(len(list))}
	for round := range 3 {
		began := cputime.Used()
		res, err := sim.Run(ctx, sim.Config{Tables: t, Policy: balance.New(t), Source: arrivals.Slice(list), NoReport: true})
		if err != nil {
			return out, err
		}
		spent, bare := (cputime.Used() - began).Seconds(), bareHeap(res.Events)
		if out.Events = res.Events; round == 0 {
			out.CPU, out.Bare = spent, bare
		}
		out.CPU, out.Bare = min(out.CPU, spent), min(out.Bare, bare)
	}
	return out, nil
}

// bareHeap is the CPU time of a heap of as many pending events as a hundred busy
// instances have, that takes and puts so many.
func bareHeap(events int64) float64 {
	var q kernel.Queue[[48]byte]
	rng := seeded.New(1, "heap")
	for i := range int64(120) {
		q.Push(time.Duration(rng.IntN(1<<25)), 0, i, [48]byte{})
	}
	began := cputime.Used()
	for i := range events {
		at, kind, x := q.Pop()
		q.Push(at+time.Duration(rng.IntN(1<<25)), kind, i, x)
	}
	return (cputime.Used() - began).Seconds()
}

// speeds shows what the simulator takes with one instance and with many.
func speeds(b *bench, t *table.Table) error {
	t.Columns = []string{"instances", "requests per CPU-second", "events per request", "CPU ns per event", "times a bare heap loop"}
	for _, n := range []int{1, 100} {
		r, err := measured(b.keep, fmt.Sprint("speed/", n), func() (fast, error) { return measureFast(b.ctx, n) })
		if err != nil {
			return err
		}
		rate, ratio := float64(r.Requests)/r.CPU, r.CPU/r.Bare
		t.Add(n, fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.1f", float64(r.Events)/float64(r.Requests)), fmt.Sprintf("%.0f", 1e9*r.CPU/float64(r.Events)), fmt.Sprintf("%.1f", ratio))
		if n == 1 {
			continue
		}
		source := "the simulator, 20,000 requests to Vicuna-13B, least of 3 in turns with the heap"
		b.figures = append(b.figures,
			figures.Figure{Claim: fmt.Sprintf("simulated requests per CPU-second with %d instances", n), Source: source, Measured: rate, Unit: "1/s of CPU"},
			figures.Figure{Claim: fmt.Sprintf("CPU time of that over a bare heap loop with as many events, %d instances", n), Source: source, Measured: ratio, Unit: "times the CPU time"})
	}
	return nil
}
