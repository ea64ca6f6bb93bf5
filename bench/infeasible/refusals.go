package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/table"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
)

// refusal is the time of the answer to a problem without a plan, beside that of the problem it calls nearest.
type refusal struct {
	seed         uint64
	name         string
	near         kind.NearestFeasible
	cut          string
	no, solution float64 // seconds of CPU: of the answer, and of solving what is nearest
}

func (r *refusal) ratio() float64 { return r.no / r.solution }

// mostRatio bounds the CPU of an answer over that of solving the nearest problem, in the median.
const mostRatio = 3

// overloaded draws a problem of one or two language models in one to three classes that asks too much: rates that are
// 1.2 to 5 times what the devices do, or, in one of four draws, an SLO that hardly an answer keeps.
func overloaded(r *rand.Rand) *instance {
	server := func(device string, base float64) formats.LLMInstance {
		return formats.LLMInstance{
			Device: device, TensorParallel: 1, KVTokens: 200000, KVSource: formats.KVMeasured,
			Iteration: formats.Iteration{BaseNS: base, SequenceNS: 87000, ContextNS: 183, PromptNS: 64000, HingeTokens: 128, AttentionNS: 2},
			Loads:     &formats.ModelLoads{ColdUS: document.Micros(4 * time.Second), WarmUS: document.Micros(time.Second)},
		}
	}
	p := &formats.Profile{Format: formats.FormatProfile, LLMs: []formats.LLMProfile{
		{Model: "m7", WeightBytes: 14e9, KVBytesPerToken: 131072, ContextTokens: 8192, Instances: []formats.LLMInstance{server("A100", 13e6), server("A10", 26e6)}},
		{Model: "m13", WeightBytes: 26e9, KVBytesPerToken: 131072, ContextTokens: 8192, Instances: []formats.LLMInstance{server("A100", 23e6)}},
	}}
	c := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "A100", Count: 1 + r.IntN(3), USDPerHour: 3}}}
	does := 4 * float64(c.Pools[0].Count)
	if r.IntN(2) == 0 {
		c.Pools = append(c.Pools, formats.Pool{Device: "A10", Count: 1 + r.IntN(3), USDPerHour: 1})
		does += 2 * float64(c.Pools[1].Count)
	}
	lognormal := func(mean float64, most int) *formats.Lengths {
		return &formats.Lengths{Distribution: formats.LengthsLognormal, Mean: mean, SD: mean * (0.3 + 0.5*r.Float64()), Max: most}
	}
	seconds := func(s float64) document.SLO { return document.SLO{Duration: time.Duration(s * float64(time.Second))} }
	l := &formats.LLM{Models: []string{"m7", "m13"}[:1+r.IntN(2)]}
	offered := 0.0
	for i := range 1 + r.IntN(3) {
		k := formats.LLMClass{Class: fmt.Sprint("c", i), SLO: seconds(between(r, 15, 75)), RPS: 0.5 + r.Float64(), Prompt: lognormal(between(r, 200, 800), 3000), Output: lognormal(between(r, 40, 200), 800)}
		switch r.IntN(4) {
		case 0:
			k.WaitingSLO = seconds(between(r, 5, 15))
		case 1:
			k.SLO, k.Figure = seconds(between(r, 2, 8)), formats.FigureTTFT
		}
		offered += k.RPS
		l.Classes = append(l.Classes, k)
	}
	load, way := between(r, 1.2, 5), one(r, "rates", "rates", "rates", "slo")
	if way == "slo" {
		load = 0.5
		l.Classes[0].SLO, l.Classes[0].Figure = seconds(between(r, 0.2, 2)), ""
	}
	for i := range l.Classes {
		l.Classes[i].RPS *= load * does / offered
	}
	x := &instance{name: "queue, " + way, in: planner.Inputs{Profile: p, Cluster: c, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: l, Arrivals: &formats.Arrivals{Process: "poisson"}}}}
	x.opt.Set("objective", one(r, "gpus", "cost"))
	return x
}

// measureRefusal answers a problem, and solves the nearest feasible one. If the problem has a plan, it returns nil.
func measureRefusal(ctx context.Context, seed uint64) (*refusal, error) {
	x := overloaded(rand.New(rand.NewPCG(seed, 29)))
	began := cputime.Used()
	err := solve(ctx, x.in, x.opt)
	out := &refusal{seed: seed, name: x.name, no: (cputime.Used() - began).Seconds()}
	inf, infeasible := errors.AsType[*planner.InfeasibleError](err)
	switch {
	case err == nil:
		return nil, nil
	case !infeasible:
		return nil, fmt.Errorf("seed %d: %w", seed, err)
	}
	if out.near, out.cut = inf.Nearest, inf.CutShort; out.near.String() == "" || out.near.NotSolved {
		return out, nil
	}
	at := x.again()
	at.take(&out.near, inf.Model, 1, 1)
	began = cputime.Used()
	if err := solve(ctx, at.in, at.opt); err != nil {
		return nil, fmt.Errorf("seed %d: nearest %s: %w", seed, &out.near, err)
	}
	out.solution = (cputime.Used() - began).Seconds()
	return out, nil
}

// refusals shows what the answers to n problems without a plan take.
func refusals(ctx context.Context, o *options) error {
	t := &table.Table{Columns: []string{"seed", "what is out of reach", "nearest", "no, s of CPU", "solving what is nearest, s of CPU", "times", "cut short"}}
	var ratios []float64
	without, plans := 0, 0
	for seed := o.first; len(ratios) < o.refusals; seed++ {
		r, err := measureRefusal(ctx, seed)
		switch {
		case err != nil:
			return err
		case r == nil:
			plans++
			continue
		case r.solution == 0:
			without++
			t.Add(seed, r.name, "", fmt.Sprintf("%.2f", r.no), "", "", r.cut)
			continue
		}
		ratios = append(ratios, r.ratio())
		t.Add(seed, r.name, r.near.String(), fmt.Sprintf("%.2f", r.no), fmt.Sprintf("%.2f", r.solution), fmt.Sprintf("%.1f", r.ratio()), r.cut)
	}
	if err := t.Markdown(os.Stdout); err != nil {
		return err
	}
	slices.Sort(ratios)
	n := len(ratios)
	middle := (ratios[(n-1)/2] + ratios[n/2]) / 2
	fmt.Printf("\nmedian %.2f times; %d of the draws had a plan, and of %d no plan was found that asks for less\n", middle, plans, without)
	if o.figures == "" {
		return nil
	}
	return figures.Put(o.figures, o.command, figures.Figure{
		Claim: "a no of queues of language models with what is nearest: its CPU over that of solving what is nearest, median", Source: "asked of this project",
		Asked: fmt.Sprintf("at most %d", mostRatio), Measured: middle, Interval: &[2]float64{ratios[0], ratios[n-1]}, Unit: "times the CPU time", Holds: figures.If(middle <= mostRatio),
		Note: fmt.Sprintf("%d problems without a plan, seeds from %d; quartiles %.2f and %.2f", n, o.first, ratios[n/4], ratios[3*n/4]),
	})
}
