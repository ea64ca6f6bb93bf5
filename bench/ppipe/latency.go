package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"inferplan/bench/instrument"
	"inferplan/pages/picture"
	"inferplan/policy"
	"inferplan/sim"
)

// latencyLoads are the loads of part latency.
var latencyLoads = []float64{.05, .1, .2, .3, .5, .7, .8, .9, 1, 1.1}

const lowLoad = .3 // up to which the median is held against an idle path

// manners are those of reserve: what waits goes as soon as its path is free, or waits for a fuller
// batch until the last moment of the SLO, as in PPipe.
var manners = []struct {
	name  string
	value float64
}{{"at once", 1}, {"waiting", 0}}

// chosenOn are the groups of maf19 on which the rule was chosen; it is judged on the others.
const chosenOn = "G1 G3"

// setOf names the set of a case: what its plans are, and whether the rule was chosen on it.
func setOf(s *scene) string {
	if strings.Contains(chosenOn, s.group) {
		return s.family + ", " + chosenOn
	}
	return s.family + ", other groups"
}

// latencies holds the results of cases at a load, by model.
type latencies struct {
	P50, P99, OfSLO, Attained []float64 // median and p99 over the idle path, p99 over the SLO
}

// add adds the results of other cases.
func (l *latencies) add(other *latencies) {
	l.P50, l.P99 = append(l.P50, other.P50...), append(l.P99, other.P99...)
	l.OfSLO, l.Attained = append(l.OfSLO, other.OfSLO...), append(l.Attained, other.Attained...)
}

// sweep holds the results of cases in a manner.
type sweep struct {
	Loads   []latencies // by latencyLoads
	Highest []float64   // load at which a model attains what is asked, by model
}

// latency compares, at the same plans, what going at once and waiting for fuller batches do
// to the latency at every load, and to the highest load.
func (b *bench) latency(_ *instrument.Run, t *instrument.Table) error {
	all, err := b.scenes("maf19/", b.recorded(algorithms...), b.replanned(1), b.replanned(3))
	if err != nil {
		return err
	}
	for _, p := range []process{poisson, gamma(2)} {
		results := make([]*sweep, len(all)*len(manners))
		if err := b.ForEach(len(results), func(ctx context.Context, i int) (err error) {
			results[i], err = b.sweep(ctx, &all[i/len(manners)], p, manners[i%len(manners)].value)
			return err
		}); err != nil {
			return err
		}
		sets := map[string][]*sweep{} // a sweep for each manner
		for i, result := range results {
			set := setOf(&all[i/len(manners)])
			if sets[set] == nil {
				for range manners {
					sets[set] = append(sets[set], &sweep{Loads: make([]latencies, len(latencyLoads))})
				}
			}
			sum := sets[set][i%len(manners)]
			sum.Highest = append(sum.Highest, result.Highest...)
			for k := range result.Loads {
				sum.Loads[k].add(&result.Loads[k])
			}
		}
		for _, set := range slices.Sorted(maps.Keys(sets)) {
			for k, load := range latencyLoads {
				for m, sum := range sets[set] {
					l := &sum.Loads[k]
					t.Add(set, p.name, load, manners[m].name, fmt.Sprintf("%.2f", mean(l.P50)), fmt.Sprintf("%.2f", slices.Max(l.P50)), fmt.Sprintf("%.2f", mean(l.P99)), fmt.Sprintf("%.2f", mean(l.OfSLO)), fmt.Sprintf("%.5f", mean(l.Attained)))
				}
			}
			atOnce, waiting := sets[set][0], sets[set][1]
			t.Note("%s, %s: highest load at .99 %.4f at once, %.4f waiting", set, p.name, mean(atOnce.Highest), mean(waiting.Highest))
			b.latencyFigures(set+", "+p.name, atOnce, waiting)
		}
		if err := b.plotLatency(p, sets); err != nil {
			return err
		}
	}
	return nil
}

// sweep simulates a case at all loads and looks for the highest load of every model.
func (b *bench) sweep(ctx context.Context, s *scene, p process, eager float64) (*sweep, error) {
	subject, err := b.subject(ctx, s, "PPipe", asOurs, p)
	if err != nil {
		return nil, err
	}
	subject.sc.Policy.Params = map[string]float64{"eager": eager}
	return instrument.Measured(b.Run, fmt.Sprintf("latency %g %s", eager, subject.key), func() (*sweep, error) {
		out := &sweep{}
		for _, load := range latencyLoads {
			sc := *subject.sc
			sc.Load = load
			res, err := sim.Replicate(ctx, &sc, b.runs)
			if err != nil {
				return nil, err
			}
			var l latencies
			for m := range res.Report.Models {
				r, idle := &res.Report.Models[m], float64(idlePath(sc.Tables, int32(m)))
				p99 := float64(r.Latency.P99US.D())
				l.add(&latencies{[]float64{float64(r.Latency.P50US.D()) / idle}, []float64{p99 / idle}, []float64{p99 / float64(sc.Tables.Models[m].SLO)}, []float64{r.Attainment}})
			}
			out.Loads = append(out.Loads, l)
		}
		out.Highest, err = subject.modelLoads(ctx, .005)
		return out, err
	})
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

// latencyFigures states what was asked of a set of cases.
func (b *bench) latencyFigures(set string, atOnce, waiting *sweep) {
	worst := 0.0
	for k, load := range latencyLoads {
		if load <= lowLoad {
			worst = max(worst, slices.Max(atOnce.Loads[k].P50))
		}
	}
	full := slices.Index(latencyLoads, 1)
	lost := 100 * (mean(waiting.Loads[full].Attained) - mean(atOnce.Loads[full].Attained))
	less := 100 * (1 - mean(atOnce.Highest)/mean(waiting.Highest))
	note := fmt.Sprintf("%d models, %d runs of %v", len(atOnce.Highest), b.runs, b.duration)
	b.AtMost("p50 over the sum of batch-1 times and transfers, most of models at loads up to .3, "+set, "own", 1.3, "", worst).Note = note
	b.AtMost("attainment at load 1 lost by going at once, "+set, "own", .1, "points", lost).Note = note
	b.AtMost("highest load at .99 lost by going at once, mean of models, "+set, "own", .2, "%", less).Note = note + ", in steps of .005"
}

// plotLatency draws the latencies of all sets over the load.
func (b *bench) plotLatency(p process, sets map[string][]*sweep) error {
	panel := picture.Panel{Title: "Latency over that of an idle path, " + p.name, Vertical: "times", FromZero: true}
	for m := range manners {
		p50 := picture.Line{Name: "p50, " + manners[m].name, Marks: true}
		p99 := picture.Line{Name: "p99, " + manners[m].name, Marks: true}
		for k, load := range latencyLoads {
			var l latencies
			for _, set := range slices.Sorted(maps.Keys(sets)) {
				l.add(&sets[set][m].Loads[k])
			}
			p50.Points = append(p50.Points, plotter.XY{X: load, Y: mean(l.P50)})
			p99.Points = append(p99.Points, plotter.XY{X: load, Y: mean(l.P99)})
		}
		panel.Lines = append(panel.Lines, p50, p99)
	}
	svg, err := picture.Panels("load", []picture.Panel{panel})
	if err != nil {
		return err
	}
	return b.WriteFile("latency-"+strings.ReplaceAll(p.name, ":", "-")+".svg", svg)
}
