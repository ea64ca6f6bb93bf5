package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"inferplan/bench/figures"
	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/solver/highs"
)

// latencyLoads are the loads of the latency table.
var latencyLoads = []float64{.05, .1, .2, .3, .5, .7, .8, .9, 1, 1.1}

const lowLoad = .3 // up to which the median is held against an idle path

// reserveManners are those of reserve: what waits goes as soon as its path is free, or waits for a fuller
// batch until the last moment of the SLO, as in PPipe.
var reserveManners = []struct {
	name  string
	eager float64
}{{"at once", 1}, {"waiting", 0}}

// chosenOn are the groups of maf19 on which the rule was chosen; it is judged on the others.
const chosenOn = "G1 G3"

// latencies holds the results of a set of cases at a load.
type latencies struct {
	p50, p99, ofSLO, attained mean
	worst                     float64 // p50 over the idle path
}

// latency compares, at the same plans, what going at once and waiting for fuller batches do
// to the latency at every load, and to the highest load.
func (b *bench) latency(ctx context.Context, w *tabwriter.Writer) error {
	all, err := b.scenes("maf19/", b.recorded(), b.replanned(1), b.replanned(3))
	if err != nil {
		return err
	}
	processes, err := traces(filepath.Join(b.data, "traces")).processes("poisson,gamma:2")
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "cases\tgroups\tarrivals\tload\tmanner\tp50 / idle path\tmost\tp99 / idle path\tp99 / SLO\tattainment")
	for _, p := range processes {
		points, highest := map[string]*latencies{}, map[string]*mean{}
		for i := range all {
			for _, m := range reserveManners {
				if err := b.latencyOf(ctx, &all[i], p, m.eager, func(load float64) *latencies {
					key := fmt.Sprintf("%s %s %v", setOf(&all[i]), m.name, load)
					if points[key] == nil {
						points[key] = new(latencies)
					}
					return points[key]
				}, func(load float64) {
					key := setOf(&all[i]) + " " + m.name
					if highest[key] == nil {
						highest[key] = new(mean)
					}
					highest[key].add(load)
				}); err != nil {
					return fmt.Errorf("%s, %s: %w", all[i].name, m.name, err)
				}
			}
		}
		sets := map[string]bool{}
		for i := range all {
			sets[setOf(&all[i])] = true
		}
		for _, set := range sortedKeys(sets) {
			for _, load := range latencyLoads {
				for _, m := range reserveManners {
					l := points[fmt.Sprintf("%s %s %v", set, m.name, load)]
					fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.5f\n", set, p.name, load, m.name, l.p50.value(), l.worst, l.p99.value(), l.ofSLO.value(), l.attained.value())
				}
			}
			for _, m := range reserveManners {
				fmt.Fprintf(w, "%s\t%s\thighest at .99\t%s\t%.4f\n", set, p.name, m.name, highest[set+" "+m.name].value())
			}
			latencyFigures(b, set, p, points, highest)
		}
		w.Flush()
		var lines []line
		for _, m := range reserveManners {
			for at, of := range []func(*latencies) *mean{func(l *latencies) *mean { return &l.p50 }, func(l *latencies) *mean { return &l.p99 }} {
				l := line{name: []string{"p50", "p99"}[at] + ", " + m.name}
				for _, load := range latencyLoads {
					var sum mean
					for set := range sets {
						v := of(points[fmt.Sprintf("%s %s %v", set, m.name, load)])
						sum.sum, sum.n = sum.sum+v.sum, sum.n+v.n
					}
					l.points = append(l.points, [2]float64{load, sum.value()})
				}
				lines = append(lines, l)
			}
		}
		if err := b.plot("latency-"+strings.ReplaceAll(p.name, ":", "-"), "Latency over that of an idle path, "+p.name, "load", "times", lines); err != nil {
			return err
		}
	}
	return nil
}

// setOf names the set of a case: what its plans are, and whether the rule was chosen on it.
func setOf(s *scene) string {
	set, half := s.family, "other groups"
	if strings.Contains(chosenOn, s.group) {
		half = chosenOn
	}
	return set + "\t" + half
}

// latencyOf simulates a case at all loads and looks for the highest load of every model.
func (b *bench) latencyOf(ctx context.Context, s *scene, p process, eager float64, at func(load float64) *latencies, highest func(load float64)) error {
	of, err := b.subject(ctx, s, "PPipe", reserve.Name, policy.TopologyNodes, p)
	if err != nil {
		return err
	}
	of.sc.Policy.Params = map[string]float64{"eager": eager}
	for _, load := range latencyLoads {
		sc := *of.sc
		sc.Load, sc.Arrivals = load, p.spec
		res, err := sim.Replicate(ctx, &sc, b.runs)
		if err != nil {
			return err
		}
		l := at(load)
		for m := range res.Report.Models {
			r, idle := &res.Report.Models[m], idlePath(sc.Tables, int32(m))
			p50, p99 := float64(r.Latency.P50US.D())/float64(idle), float64(r.Latency.P99US.D())/float64(idle)
			l.p50.add(p50)
			l.p99.add(p99)
			l.ofSLO.add(float64(r.Latency.P99US.D()) / float64(sc.Tables.Models[m].SLO))
			l.attained.add(r.Attainment)
			l.worst = max(l.worst, p50)
		}
	}
	of.sc.Arrivals = p.spec
	found, err := sim.FindModelLoads(ctx, of.sc, sim.ModelLoadSearch{Shares: slices.Repeat([]float64{asked}, len(of.sc.Tables.Models)), Runs: b.runs, Step: .005, MaxLoad: 1.5})
	if err != nil {
		return err
	}
	for _, load := range found.Loads {
		highest(load)
	}
	return nil
}

// idlePath is the sum of a model's batch-1 times and transfers: the mean of its pipelines
// by their rates.
func idlePath(t *policy.Tables, model int32) time.Duration {
	first, last := t.PipelinesOf(model)
	sum, rate := 0.0, 0.0
	for i := first; i < last; i++ {
		pl := &t.Pipelines[i]
		path := time.Duration(0)
		for _, st := range t.Stages[pl.FirstStage : pl.FirstStage+pl.NumStages] {
			path += st.Infer[0]
			if st.Xfer != nil {
				path += st.Xfer[0]
			}
		}
		sum, rate = sum+pl.RPS*float64(path), rate+pl.RPS
	}
	return time.Duration(sum / rate)
}

// latencyFigures adds what was asked of a set of cases.
func latencyFigures(b *bench, set string, p process, points map[string]*latencies, highest map[string]*mean) {
	name := strings.ReplaceAll(set, "\t", ", ") + ", " + p.name
	worst := 0.0
	for _, load := range latencyLoads {
		if load <= lowLoad {
			worst = max(worst, points[fmt.Sprintf("%s at once %v", set, load)].worst)
		}
	}
	full := func(manner string) float64 { return points[fmt.Sprintf("%s %s 1", set, manner)].attained.value() }
	lost := 100 * (full("waiting") - full("at once"))
	less := 100 * (1 - highest[set+" at once"].value()/highest[set+" waiting"].value())
	note := fmt.Sprintf("%d models, %d runs of %v", highest[set+" at once"].n, b.runs, b.duration)
	b.measured = append(b.measured,
		figures.Figure{Claim: "p50 over the sum of batch-1 times and transfers, most of models at loads up to .3, " + name, Source: "own", Asked: "at most 1.3", Measured: worst, Holds: figures.If(worst <= 1.3), Note: note},
		figures.Figure{Claim: "attainment at load 1 lost by going at once, " + name, Source: "own", Asked: "at most .1", Measured: lost, Unit: "points", Holds: figures.If(lost <= .1), Note: note},
		figures.Figure{Claim: "highest load at .99 lost by going at once, mean of models, " + name, Source: "own", Asked: "at most .2", Measured: less, Unit: "%", Holds: figures.If(less <= .2), Note: note + ", in steps of .005"},
	)
}

// replanned are the recorded cases as --margin auto plans them, with SLOs that are some
// times as long, so that batches are larger.
func (b *planning) replanned(times float64) []scene {
	family := "--margin auto"
	if times != 1 {
		family += fmt.Sprintf(", SLO x %g", times)
	}
	var out []scene
	for i := range b.plans {
		ref := &b.plans[i]
		if ref.Algorithm != "PPipe" || ref.Empty {
			continue
		}
		out = append(out, scene{name: fmt.Sprintf("auto%g/%s", times, ref.Case), family: family, group: ref.Group, cluster: ref.Cluster,
			plan: func(ctx context.Context, _ string) (*formats.Plan, error) {
				in, opt := b.inputs(ref)
				models := in.Workload.Section.(formats.WorkloadModels)
				for k := range models {
					models[k].SLO.Duration = time.Duration(math.Round(times * float64(models[k].SLO.Duration)))
				}
				opt.Set("margin", planner.Auto)
				opt.TestSettings = kind.TestSettings{Attainment: asked, Runs: 3, Duration: 10 * time.Second, Seed: 1}
				return b.store.plan(fmt.Sprintf("latency-%s-%s", keyOf(in.Cluster, in.Workload, b.profileKey), keyOf(fmt.Sprintf("%+v", opt))), func() (*formats.Plan, error) {
					res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
					if err != nil {
						return nil, err
					}
					return res.Plan, ctx.Err()
				})
			},
		})
	}
	return out
}
