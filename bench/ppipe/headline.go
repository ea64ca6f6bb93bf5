package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"

	"inferplan/bench/figures"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/solver/highs"
	"inferplan/testkit/reference"
)

func (b *bench) headline(ctx context.Context, w *tabwriter.Writer) error {
	all, err := b.selected("PPipe", "^maf19/")
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errNoCase
	}
	fmt.Fprintln(w, "case\tartifact rps/weight\tin steps of .01\tours, its margin\tratio\tours, --margin auto\tratio\tto steps of .01\tauto / its margin\theadroom\tCPU s\tbound without margin\tshare of it")
	var fixed, auto, finer, gained, reached mean
	least, slowest := math.Inf(1), 0.
	for _, ref := range all { // one at a time, for the CPU of each
		p, err := b.certify(ctx, ref)
		if err != nil {
			return fmt.Errorf("%s: %w", ref.Case, err)
		}
		theirs := math.Inf(1)
		for k := range ref.DNNs {
			theirs = min(theirs, b.sustained(ref, ref.DNNs[k].Model)*ref.DNNs[k].RPS/ref.Weights[k])
		}
		if theirs == 0 || math.IsInf(theirs, 0) {
			fmt.Fprintf(w, "%s\tno load recorded at which every model attains\n", ref.Case)
			continue
		}
		o, a, bound := certified(p.Own.Plan), certified(p.Auto.Plan), *p.Free.Objective.Bound
		reached.add(a / bound)
		fixed.add(o / theirs)
		auto.add(a / theirs)
		finer.add(a / p.Theirs)
		gained.add(a / o)
		least, slowest = min(least, a/theirs), max(slowest, p.CPU)
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.3f\t%.1f\t%.3f\t%.3f\t%.3f\t%s\t%.1f\t%.1f\t%.3f\n", ref.Case, theirs, p.Theirs, o, o/theirs, a, a/theirs, a/p.Theirs, a/o, headroom(p.Auto.Plan), p.CPU, bound, a/bound)
		w.Flush()
	}
	if fixed.n == 0 {
		return nil
	}
	fmt.Fprintf(w, "mean of %d\t\t\t\t%.3f\t\t%.3f\t%.3f\t%.3f\t\t\t\t%.3f\n", fixed.n, fixed.value(), auto.value(), finer.value(), gained.value(), reached.value())
	source, note := "PPipe's artifact, maf19", fmt.Sprintf("%d cases; against the artifact's plans in steps of .01 %.3f", fixed.n, finer.value())
	b.measured = append(b.measured,
		figures.Figure{Claim: "certified rps of --margin auto over the artifact's, mean of cases", Source: source, Asked: "at least 1.25", Measured: auto.value(), Holds: figures.If(auto.value() >= 1.25), Note: note},
		figures.Figure{Claim: "certified rps of --margin auto over the artifact's, least of cases", Source: source, Asked: "at least 1", Measured: least, Holds: figures.If(least >= 1), Note: note},
		figures.Figure{Claim: "CPU time of --margin auto, most of a case", Source: "own", Asked: "at most 10", Measured: slowest, Unit: "s", Holds: figures.If(slowest <= 10), Note: note},
	)
	return nil
}

// headroom returns the reserves of a plan: the margin, and each model's utilisation.
func headroom(p *formats.Plan) string {
	text := fmt.Sprintf("%.2g", p.Options.Number("margin"))
	for i, h := range formats.PoolOf(p).Headroom {
		text += [...]string{" at ", "/"}[min(i, 1)] + fmt.Sprintf("%.2f", h.Utilisation)
	}
	return text
}

// headlined is a recorded case planned at its own margin, by --margin auto and without
// a margin.
type headlined struct {
	Own, Auto, Free storedPlan
	CPU             float64 // of --margin auto
	Theirs          float64 // what the artifact's plan sustains in steps of .01
}

// certify plans a recorded case at its own margin, at the headroom that
// simulation chooses, and without any.
func (b *bench) certify(ctx context.Context, ref *reference.Plan) (*headlined, error) {
	in, opt := b.inputs(ref)
	cert := kind.TestSettings{Attainment: asked, Runs: b.runs, Duration: b.duration, Seed: 1}
	scenes := b.recorded()
	at := slices.IndexFunc(scenes, func(s scene) bool { return s.name == ref.Case })
	s, err := b.subject(ctx, &scenes[at], "PPipe", reserve.Name, policy.TopologyNodes, process{name: "poisson", spec: poisson})
	if err != nil {
		return nil, err
	}
	return keep(b.store, "headline-"+keyOf(ref.Case, s.print, fmt.Sprintf("%+v %+v", opt, cert)), func() (*headlined, error) {
		var out headlined
		res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
		if err != nil {
			return nil, err
		}
		out.Own.Plan = res.Plan
		if err := planner.MethodOf(res.Plan.Kind).Certify(ctx, res.Plan, cert); err != nil {
			return nil, err
		}
		tuned := opt
		tuned.Set("margin", planner.Auto)
		tuned.TestSettings = cert
		cpu := cputime.Used()
		if res, err = planner.Solve(ctx, in, tuned, highs.Solver{}, nil); err != nil {
			return nil, err
		}
		out.CPU, out.Auto.Plan = (cputime.Used() - cpu).Seconds(), res.Plan
		opt.Set("margin", 0.0)
		if res, err = planner.Solve(ctx, in, opt, highs.Solver{}, nil); err != nil {
			return nil, err
		}
		out.Free.Plan = res.Plan
		if out.Theirs, err = b.finely(ctx, &scenes[at], ref); err != nil {
			return nil, err
		}
		return &out, ctx.Err()
	})
}

// finely returns the rate that the artifact's plan sustains under its own dispatch, as rps
// per weight: like the recorded one, but in steps of .01 and beyond its promise.
func (b *bench) finely(ctx context.Context, s *scene, ref *reference.Plan) (float64, error) {
	of, err := b.subject(ctx, s, "PPipe", artifact.Name, policy.TopologyStages, process{name: "poisson", spec: poisson})
	if err != nil {
		return 0, err
	}
	of.sc.Arrivals = poisson
	found, err := sim.FindModelLoads(ctx, of.sc, sim.ModelLoadSearch{Shares: slices.Repeat([]float64{asked}, len(of.sc.Tables.Models)), Runs: b.runs, Step: .01, MaxLoad: 1.5})
	if err != nil {
		return 0, err
	}
	least := math.Inf(1)
	for i, load := range found.Loads {
		k := slices.IndexFunc(ref.DNNs, func(d reference.DNN) bool { return d.Model == of.sc.Tables.Models[i].Name })
		least = min(least, load*ref.DNNs[k].RPS/ref.Weights[k])
	}
	return least, nil
}

// certified is a plan's certified rps per weight, the least over models.
func certified(p *formats.Plan) float64 {
	least := math.Inf(1)
	for i, m := range p.Certificate.Models {
		least = min(least, m.RPS/p.PromiseFor(i).Weight)
	}
	return least
}
