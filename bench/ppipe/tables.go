package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"inferplan/bench/ppipe/reactive"
	"inferplan/bench/recorded"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/planner"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/solver/highs"
)

const asked = 0.99

var errNoCase = errors.New("no recorded plan matches -cases")

func (b *bench) recompute(_ context.Context, w *tabwriter.Writer) error {
	fmt.Fprintln(w, "algorithm\tplans\trecomputed")
	for _, algorithm := range []string{"NP", "DART-r", "PPipe"} {
		all, err := b.selected(algorithm, ".")
		if err != nil {
			return err
		}
		good := 0
		for _, ref := range all {
			if _, err := recorded.Plan(ref, b.profile); err != nil {
				fmt.Fprintf(b.out, "%v\n", err)
				continue
			}
			good++
		}
		fmt.Fprintf(w, "%s\t%d\t%d\n", algorithm, len(all), good)
	}
	return nil
}

func (b *bench) objective(ctx context.Context, w *tabwriter.Writer) error {
	fmt.Fprintln(w, "case\tours\trecorded\tdifference\tbound\tgap\tCPU ms to the recorded value\tCPU s in all")
	all, err := b.selected("PPipe", "^maf19/|^maf21/|^ablation/")
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errNoCase
	}
	// One after the other: the CPU time is that of the whole process.
	for _, ref := range all {
		in, opt := b.inputs(ref)
		opt.Set("gap", 1e-4)
		r, err := keep(b.store, keyOf("objective", b.profileKey, in.Cluster, in.Workload, ref.Objective, fmt.Sprintf("%+v", opt)), func() (reached, error) {
			cpu := cputime.Used()
			res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
			if err != nil {
				return reached{}, err
			}
			r := reached{Value: res.Plan.Objective.Value, Bound: *res.Plan.Objective.Bound, Gap: *res.Plan.Objective.Gap, CPU: (cputime.Used() - cpu).Seconds()}
			if i := slices.IndexFunc(res.Incumbents, func(i planner.Incumbent) bool { return i.Value >= ref.Objective*(1-1e-4) }); i >= 0 {
				r.ToReference = &res.Incumbents[i].CPUMS
			}
			return r, ctx.Err()
		})
		if err != nil {
			return fmt.Errorf("%s: %w", ref.Case, err)
		}
		took := "not reached"
		if r.ToReference != nil {
			took = fmt.Sprintf("%.0f", *r.ToReference)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%+.3f %%\t%.2f\t%.4f %%\t%s\t%.1f\n", ref.Case, r.Value, ref.Objective, 100*(r.Value/ref.Objective-1), r.Bound, 100*r.Gap, took, r.CPU)
	}
	return nil
}

// reached holds the results of a solve of a recorded case.
type reached struct {
	Value, Bound, Gap float64
	CPU               float64  // seconds, of all
	ToReference       *float64 // milliseconds of CPU to the recorded value
}

var poisson = &formats.Arrivals{Process: "poisson"}

func (b *bench) transfers(ctx context.Context, w *tabwriter.Writer) error {
	scenes, err := b.scenes("^ablation/", b.recorded(), b.ours("ours19", []float64{0.3, 0.33, 0.37}))
	if err != nil {
		return err
	}
	const at = gridSteps * 9 / 10
	names := []string{reserve.Name, reactive.Name}
	type row struct {
		load, attained, count, meanMS, p99MS float64
	}
	rows := make([]row, len(scenes)*len(names))
	b.announce(ctx, scenes, "transfers", 10)
	if err := each(ctx, len(rows), func(ctx context.Context, i int) error {
		s, err := b.subject(ctx, &scenes[i/len(names)], "PPipe", names[i%len(names)], policy.TopologyNodes, process{name: "poisson", spec: poisson})
		if err != nil {
			return err
		}
		r := &rows[i]
		r.load = 1
		for m := range s.sc.Tables.Models {
			point, err := s.highest(ctx, m)
			if err != nil {
				return err
			}
			r.load = min(r.load, float64(point)/gridSteps)
		}
		runs, err := s.runs(ctx, everyone, at)
		if err != nil {
			return err
		}
		var all modelResult
		for k := range runs {
			for _, m := range runs[k].Models {
				all.Requests += m.Requests
				all.Lost += m.Lost
			}
			n := runs[k].Transfers[0]
			r.count += n
			r.meanMS += n * runs[k].Transfers[1]
			r.p99MS += n * runs[k].Transfers[2]
		}
		r.attained = all.attained()
		r.meanMS /= max(r.count, 1)
		r.p99MS /= max(r.count, 1)
		return nil
	}); err != nil {
		return err
	}
	fmt.Fprintln(w, "case\tpolicy\thighest load\tattainment at 0.9\ttransfers\tmean ms\tp99 ms (mean over runs)")
	overall := make([]mean, len(names))
	for i, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.4f\t%.0f\t%.2f\t%.2f\n", scenes[i/len(names)].name, names[i%len(names)], r.load, r.attained, r.count, r.meanMS, r.p99MS)
		overall[i%len(names)].add(r.load)
	}
	for k, name := range names {
		fmt.Fprintf(w, "mean of %d\t%s\t%.3f\n", len(scenes), name, overall[k].value())
	}
	return nil
}
