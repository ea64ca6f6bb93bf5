package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/reserve"
)

// bursty are the arrivals of the load table for the recorded cases weighted as
// maf21; those weighted equally and those that we planned, which would take as
// long again, have a part of them.
const (
	bursty       = "gamma:1.5,gamma:2,azure,azure-minutes,twitter"
	burstyEqual  = "gamma:1.5,azure-minutes"
	burstyOurs21 = "gamma:1.5"
)

// arrivalsOf are the arrivals under which the load table shows a case.
func arrivalsOf(s *scene) string {
	switch {
	case !strings.HasSuffix(s.family, "21"):
		return "poisson"
	case s.inputs != nil:
		return burstyOurs21
	case strings.HasSuffix(s.name, "/w1-1-1"):
		return burstyEqual
	}
	return bursty
}

// manner is a policy on a network.
type manner struct {
	policy  string
	network policy.Topology
}

var (
	asArtifact = manner{artifact.Name, policy.TopologyStages}
	asOurs     = manner{reserve.Name, policy.TopologyNodes}
)

const loadColumns = "plan\tDNNs\tload factor\tPPipe's gain (mean of ratios)\t(ratio of means)\thigh class\tlow class"

func (b *bench) loads(ctx context.Context, w *tabwriter.Writer) error {
	scenes, err := b.scenes("^maf|^ours", b.recorded(), b.ours("ours19", []float64{0.3, 0.33, 0.37}), b.ours("ours21", []float64{0.39, 0.26, 0.35}))
	if err != nil {
		return err
	}
	columns := sortedKeys(setups)
	fmt.Fprintf(w, "family\tarrivals\tpolicy, network\t%s\t%s\n", loadColumns, strings.Join(columns, "\t"))
	families := map[string][]scene{}
	for _, s := range scenes {
		family := s.family
		if _, weights, ok := strings.Cut(s.name, s.cluster+"/"); ok { // recorded twice, with weights of their own
			family += " " + weights
		}
		families[family] = append(families[family], s)
	}
	for _, family := range sortedKeys(families) {
		processes, err := traces(filepath.Join(b.data, "traces")).processes(cmp.Or(b.arrivals, arrivalsOf(&families[family][0])))
		if err != nil {
			return err
		}
		for _, p := range processes {
			for _, m := range []manner{asArtifact, asOurs} {
				b.announce(ctx, families[family], p.name+", "+m.policy, 2*len(algorithms))
				c, err := b.compare(ctx, families[family], m, p, algorithms)
				if err != nil {
					return err
				}
				c.rows(w, fmt.Sprintf("%s\t%s\t%s, %s", family, p.name, m.policy, m.network), algorithms, columns)
				b.gains(c, family, m, p)
			}
		}
	}
	return nil
}

// requestsPerCPUSecond is about what simulating a request costs, for the
// announcement of a table's cost.
const requestsPerCPUSecond = 250_000

// announce says what the simulations of some cases cost, if none was kept.
func (b *bench) announce(ctx context.Context, scenes []scene, what string, points int) {
	total := 0.0
	for i := range scenes {
		rates, err := scenes[i].rates(ctx)
		if err != nil {
			return // it is told where it matters
		}
		for _, r := range rates {
			total += r
		}
	}
	seconds := total * b.duration.Seconds() * float64(b.runs*points) / requestsPerCPUSecond
	fmt.Fprintf(b.notes, "%s: %d cases, about %.0f CPU-seconds of simulation where nothing is kept\n", what, len(scenes), math.Ceil(seconds))
}

func (b *bench) curves(ctx context.Context, w *tabwriter.Writer) error {
	scenes, err := b.scenes(`^maf19/G1/`, b.recorded(), b.ours("ours19", []float64{0.3, 0.33, 0.37}))
	if err != nil {
		return err
	}
	p := process{name: "poisson", spec: poisson}
	fmt.Fprint(w, "case\tplan")
	for at := 2; at <= gridSteps; at += 2 {
		fmt.Fprintf(w, "\t%.1f", float64(at)/gridSteps)
	}
	fmt.Fprintln(w, "\thighest load of each DNN")
	b.announce(ctx, scenes, "curves", gridSteps/2*len(algorithms))
	for i := range scenes {
		var lines []line
		for _, a := range algorithms {
			s, err := b.subject(ctx, &scenes[i], a, asArtifact.policy, asArtifact.network, p)
			if err != nil {
				return err
			}
			l, err := s.curve(ctx)
			if err != nil {
				return err
			}
			f, err := s.find(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\t%s", scenes[i].name, a)
			for k := range l {
				fmt.Fprintf(w, "\t%.4f", l[k][1])
			}
			for k, load := range f.loads {
				fmt.Fprintf(w, "%s%s %.2f", []string{", ", "\t"}[b2i(k == 0)], f.models[k], load)
			}
			fmt.Fprintln(w)
			w.Flush()
			lines = append(lines, line{a, l})
		}
		if err := b.plot("curve-"+strings.ReplaceAll(scenes[i].name, "/", "-"), scenes[i].name, "load factor", "attainment", lines); err != nil {
			return err
		}
	}
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// curve is the attainment at every second point of the grid, mean over models.
func (s *subject) curve(ctx context.Context) ([][2]float64, error) {
	out := make([][2]float64, gridSteps/2)
	err := each(ctx, len(out), func(ctx context.Context, i int) error {
		at := 2 * (i + 1)
		var overModels mean
		for m := range s.sc.Tables.Models {
			in := m
			if !s.alone {
				in = everyone
			}
			runs, err := s.runs(ctx, in, at)
			if err != nil {
				return err
			}
			var all modelResult
			for k := range runs {
				all.Requests += runs[k].Models[m].Requests
				all.Lost += runs[k].Models[m].Lost
			}
			overModels.add(all.attained())
		}
		out[i] = [2]float64{float64(at) / gridSteps, overModels.value()}
		return nil
	})
	return out, err
}

func (b *bench) smalls(ctx context.Context, w *tabwriter.Writer) error {
	scenes, err := b.scenes(".", b.small())
	if err != nil {
		return err
	}
	p := process{name: "poisson", spec: poisson}
	fmt.Fprintf(w, "policy, network\tcluster\t%s\n", loadColumns)
	for _, m := range []manner{asArtifact, asOurs} {
		byCluster := map[string][]scene{}
		for _, s := range scenes {
			byCluster[s.cluster] = append(byCluster[s.cluster], s)
		}
		for _, cluster := range sortedKeys(byCluster) {
			c, err := b.compare(ctx, byCluster[cluster], m, p, algorithms)
			if err != nil {
				return err
			}
			c.rows(w, fmt.Sprintf("%s, %s\t%s", m.policy, m.network, cluster), algorithms, nil)
			if b.byDNN {
				if err := c.byDNN(ctx, w, algorithms); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// byDNN writes a row per model: what each plan promises as a load, which is its
// limit whatever the policy, beside the highest load that was sustained, with
// PPipe's rate, what stopped its solve, its gap, and its pipelines
// in the words of shape.
func (c *compared) byDNN(ctx context.Context, w *tabwriter.Writer, of []string) error {
	fmt.Fprint(w, "DNN\tPPipe rps\tstopped by, gap")
	for _, a := range of {
		fmt.Fprintf(w, "\t%s: promised, sustained", a)
	}
	fmt.Fprintln(w, "\tPPipe's pipelines")
	for i := range c.dnns {
		d := &c.dnns[i]
		rates, err := d.scene.rates(ctx)
		if err != nil {
			return err
		}
		var promised []string
		var first *formats.Plan
		for _, a := range of {
			plan, err := d.scene.plan(ctx, a)
			if err != nil {
				return err
			}
			if first == nil {
				first = plan
			}
			for k := range plan.Deployment {
				if plan.Deployment[k].Model == d.model {
					promised = append(promised, fmt.Sprintf("%.3f, %.2f", plan.PromiseFor(k).RPS/rates[d.model], d.load[a]))
				}
			}
		}
		gap := "none"
		if first.Objective.Gap != nil {
			gap = fmt.Sprintf("%.2f %%", 100**first.Objective.Gap)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%s, %s\t%s\t%s\n", d.model, rates[d.model], first.StoppedBy, gap, strings.Join(promised, "\t"), shape(first, d.model))
	}
	return w.Flush()
}

// shape is a model's pipelines in short, such as "3xL4/4 > 12xT4 b8
// 120/s 55%": replicas and share by stage, batch, rate, latency of the SLO.
func shape(p *formats.Plan, model string) string {
	var all []string
	for i := range p.Deployment {
		if p.Deployment[i].Model != model {
			continue
		}
		for j := range p.Deployment[i].Pipelines {
			pipe := &p.Deployment[i].Pipelines[j]
			var stages []string
			for k := range pipe.Stages {
				s := &pipe.Stages[k]
				text := fmt.Sprintf("%dx%s", s.Replicas, s.Device)
				if s.Share > 1 {
					text += fmt.Sprintf("/%d", s.Share)
				}
				stages = append(stages, text)
			}
			all = append(all, fmt.Sprintf("%s b%d %.0f/s %.0f%%", strings.Join(stages, " > "), pipe.Batch, pipe.RPS, 100*float64(pipe.LatencyUS)/float64(p.PromiseFor(i).SLOUS)))
		}
	}
	return strings.Join(all, "; ")
}
