package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/table"
	"inferplan/formats"
	"inferplan/planner"
)

// source says who asks for the figures.
const source = "asked of this project"

// roundings are the rules by which shares become whole devices.
var roundings = []string{"fractional", "slot"}

// aims are gaps, and the CPU time within which they are asked for.
var aims = []struct {
	gap    float64
	within time.Duration
}{{0.03, 5 * time.Second}, {0.01, time.Minute}}

// replanned is the CPU time within which a new plan is asked for.
const replanned = time.Second

// aimFour is the aim for four kinds.
const (
	fourGap    = 0.005
	fourWithin = time.Minute
	fourGPUs   = 100
)

// fourModels are the models of recorded clusters, planned on all kinds together.
var fourModels = [][]string{
	{"efficientnet-b8", "encnet", "rtmdet_x"},
	{"apcnet", "atss", "gcnet"},
	{"centernet", "convnext_large", "dnl"},
	{"fcn", "gfl", "wide_resnet101_2"},
}

func percent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// tell prints what a solve knew on its way.
func (b *bench) tell(name string, t *trace) {
	if !b.steps {
		return
	}
	for _, k := range t.steps {
		fmt.Fprintf(os.Stderr, "%s: %7.3f s  value %10.3f  bound %10.3f  gap %s  %s\n", name, k.after.Seconds(), k.value, k.bound, percent(k.gap()), k.phase)
	}
}

// many plans the large cluster to each gap.
func (b *bench) many(ctx context.Context, t *table.Table) ([]figures.Figure, error) {
	t.Columns = []string{"rounding", "seed", "gap asked", "gap reached", "CPU", "of which until then", "stopped by"}
	var out []figures.Figure
	for _, rounding := range roundings {
		for _, aim := range aims {
			var s spans
			for seed := range uint64(b.seeds) {
				in, opt := many(b.profile, seed, rounding)
				opt.Set("gap", aim.gap)
				r, err := solve(ctx, in, opt, b.limit)
				if err != nil {
					return nil, err
				}
				b.tell(fmt.Sprintf("%s, seed %d, %s", rounding, seed, percent(aim.gap)), r)
				at, ok := r.to(aim.gap)
				s.add(r, ok)
				until := "not reached"
				if ok {
					until = seconds(at)
				}
				t.Add(rounding, seed, percent(aim.gap), percent(r.last().gap()), seconds(r.took), until, r.plan.StoppedBy)
			}
			out = append(out, s.figure(
				fmt.Sprintf("CPU time to a plan within %s of the bound: %d models in %d SLO classes, %d kinds, %d GPUs, %s rounding", percent(aim.gap), manyModels, len(classes), manyKinds, manyGPUs, rounding),
				aim.within))
		}
	}
	return out, nil
}

// replan plans the large cluster anew after a change.
func (b *bench) replan(ctx context.Context, t *table.Table) ([]figures.Figure, error) {
	t.Columns = []string{"rounding", "seed", "change", "gap before", "gap", "GPUs that load something new", "CPU"}
	var out []figures.Figure
	for _, rounding := range roundings {
		var s spans
		for seed := range uint64(b.seeds) {
			in, opt := many(b.profile, seed, rounding)
			opt.Set("gap", aims[0].gap)
			before, err := solve(ctx, in, opt, b.limit)
			if err != nil {
				return nil, err
			}
			for _, change := range changes {
				next := changed(in, change, seed)
				next.RunningPlan = before.plan
				r, err := solve(ctx, next, opt, b.limit)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", change, err)
				}
				b.tell(fmt.Sprintf("%s, seed %d, %s", rounding, seed, change), r)
				s.add(r, r.last().gap() <= aims[0].gap+1e-9)
				t.Add(rounding, seed, change, percent(before.last().gap()), percent(r.last().gap()), r.plan.Replan.MovedGPUs, seconds(r.took))
			}
		}
		out = append(out, s.figure(
			fmt.Sprintf("CPU time of a re-plan: %d models in %d SLO classes, %d kinds, %d GPUs, %s rounding", manyModels, len(classes), manyKinds, manyGPUs, rounding),
			replanned))
	}
	return out, nil
}

// four plans the models of recorded clusters on 100 GPUs of each measured kind.
func (b *bench) four(ctx context.Context, t *table.Table) ([]figures.Figure, error) {
	t.Columns = []string{"models", "gap asked", "gap reached", "CPU", "until then", "stopped by"}
	var s spans
	for _, models := range fourModels {
		cluster := &formats.Cluster{Format: formats.FormatCluster}
		for k := range measured {
			cluster.Pools = append(cluster.Pools, pool(k, fourGPUs))
		}
		var list formats.WorkloadModels
		for i, m := range models {
			list = append(list, formats.WorkloadModel{Model: m, SLO: slo(b.profile.FindModel(m), classes[0].times), Weight: []float64{0.3, 0.33, 0.37}[i]})
		}
		in := planner.Inputs{Profile: b.profile, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: list}}
		r, err := solve(ctx, in, planner.Options{Values: map[string]any{"margin": margin, "batch-build": 1.3, "gap": fourGap}}, b.limit)
		if err != nil {
			return nil, err
		}
		b.tell(models[0], r)
		at, ok := r.to(fourGap)
		s.add(r, ok)
		until := "not reached"
		if ok {
			until = seconds(at)
		}
		t.Add(fmt.Sprint(models), percent(fourGap), percent(r.last().gap()), seconds(r.took), until, r.plan.StoppedBy)
	}
	return []figures.Figure{s.figure(
		fmt.Sprintf("CPU time to a plan within %s of the bound: 3 models on %d GPUs of each of %d kinds", percent(fourGap), fourGPUs, len(measured)), fourWithin)}, nil
}

// What is asked of a small fleet with many models: the size that most teams have.
const (
	smallGap    = 0.01
	smallWithin = 10 * time.Second
	smallGPUs   = 25
	smallMargin = 0.2
	smallSLO    = 1.2 * 5 // times a batch of one on the fastest kind: 1.2 times the recorded SLOs
)

// small plans all measured models on 25 GPUs of each measured kind, with weights as the seed draws
// them. With seed 0 all are alike.
func (b *bench) small(ctx context.Context, t *table.Table) ([]figures.Figure, error) {
	t.Columns = []string{"rounding", "weights", "gap asked", "gap reached", "CPU", "until then", "stopped by"}
	var out []figures.Figure
	for _, rounding := range roundings {
		var s spans
		for seed := range uint64(b.seeds) {
			r, err := solve(ctx, smallFleet(b.profile, seed), planner.Options{Values: map[string]any{"margin": smallMargin, "gap": smallGap, "gpu-rounding": rounding}}, b.limit)
			if err != nil {
				return nil, err
			}
			b.tell(fmt.Sprintf("%s, seed %d", rounding, seed), r)
			at, ok := r.to(smallGap)
			s.add(r, ok)
			until := "not reached"
			if ok {
				until = seconds(at)
			}
			t.Add(rounding, seed, percent(smallGap), percent(r.last().gap()), seconds(r.took), until, r.plan.StoppedBy)
		}
		out = append(out, s.figure(
			fmt.Sprintf("CPU time to a plan within %s of the bound: %d models on %d GPUs of each of %d kinds, %s rounding", percent(smallGap), len(b.profile.Models), smallGPUs, len(measured), rounding),
			smallWithin))
	}
	return out, nil
}

// spans are the CPU times of several solves.
type spans struct {
	least, most time.Duration
	worst       float64 // gap
	missed, n   int
}

func (s *spans) add(t *trace, reached bool) {
	if s.n++; s.n == 1 {
		s.least = t.took
	}
	s.least, s.most, s.worst = min(s.least, t.took), max(s.most, t.took), max(s.worst, t.last().gap())
	if !reached {
		s.missed++
	}
}

// figure is the longest of the times against what is asked.
func (s *spans) figure(claim string, within time.Duration) figures.Figure {
	holds := figures.If(s.missed == 0 && s.most <= within)
	if holds == figures.No && (s.missed < s.n && s.least <= within) {
		holds = figures.Partly
	}
	return figures.Figure{
		Claim: claim, Source: source, Asked: fmt.Sprintf("at most %g", within.Seconds()), Measured: s.most.Seconds(),
		Interval: &[2]float64{s.least.Seconds(), s.most.Seconds()}, Unit: "s of CPU", Holds: holds,
		Note: fmt.Sprintf("the longest of %d; %d did not reach the gap, the widest is %s", s.n, s.missed, percent(s.worst)),
	}
}
