package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// refusal is the time of the answer to a problem, beside that of the problem it calls nearest.
type refusal struct {
	Feasible     bool // it has a plan
	Name         string
	Nearest, Cut string  // what is called nearest, and whether the search for it was cut short
	No, Solution float64 // seconds of CPU: of the answer, and of solving what is nearest; 0 if nothing is
}

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

// refuse answers a problem, and solves the nearest feasible one.
func refuse(ctx context.Context, seed uint64) (*refusal, error) {
	x := overloaded(rand.New(rand.NewPCG(seed, 29)))
	began := cputime.Used()
	err := solve(ctx, x.in, x.opt)
	out := &refusal{Name: x.name, No: (cputime.Used() - began).Seconds()}
	inf, infeasible := errors.AsType[*planner.InfeasibleError](err)
	switch {
	case err == nil:
		out.Feasible = true
		return out, nil
	case !infeasible:
		return nil, err
	}
	out.Nearest, out.Cut = inf.Nearest.String(), inf.CutShort
	if out.Nearest == "" || inf.Nearest.NotSolved {
		return out, nil
	}
	at := x.again()
	at.take(&inf.Nearest, inf.Model, 1, 1)
	began = cputime.Used()
	if err := solve(ctx, at.in, at.opt); err != nil {
		return nil, fmt.Errorf("nearest %s: %w", out.Nearest, err)
	}
	out.Solution = (cputime.Used() - began).Seconds()
	return out, nil
}

// measureRefusals shows what the answers to problems without a plan take, one after the other.
func (b *bench) measureRefusals(r *instrument.Run, t *instrument.Table) error {
	var ratios []float64
	plans, without := 0, 0
	for seed := b.first; len(ratios) < b.refusals; seed++ {
		x, err := instrument.Measured(r, fmt.Sprintf("refusal %d", seed), func() (*refusal, error) { return refuse(r.Ctx, seed) })
		if err != nil {
			return err
		}
		switch {
		case x.Feasible:
			plans++
		case x.Solution == 0:
			without++
			t.Add(seed, x.Name, "", fmt.Sprintf("%.2f", x.No), "", "", x.Cut)
		default:
			ratio := x.No / x.Solution
			ratios = append(ratios, ratio)
			t.Add(seed, x.Name, x.Nearest, fmt.Sprintf("%.2f", x.No), fmt.Sprintf("%.2f", x.Solution), fmt.Sprintf("%.1f", ratio), x.Cut)
		}
	}
	t.Note("%d of the draws had a plan, and of %d no plan was found that asks for less", plans, without)
	slices.Sort(ratios)
	n := len(ratios)
	f := r.AtMost("a no of queues of language models with what is nearest: its CPU over that of solving what is nearest, median", "asked of this project", 3, "times the CPU time", (ratios[(n-1)/2]+ratios[n/2])/2)
	f.Interval = &[2]float64{ratios[0], ratios[n-1]}
	f.Note = fmt.Sprintf("%d problems without a plan, seeds from %d; quartiles %.2f and %.2f", n, b.first, ratios[n/4], ratios[3*n/4])
	return nil
}
