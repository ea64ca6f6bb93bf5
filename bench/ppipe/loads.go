package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"inferplan/formats"
	"inferplan/formats/report"
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

// dnn is one model of a case, with its highest load under each algorithm.
type dnn struct {
	scene *scene
	model string
	load  map[string]float64
}

// compared is the highest load of every model of some cases under every
// algorithm, and the mean use of device kinds by cluster and algorithm.
type compared struct {
	dnns []dnn
	use  map[string]map[string]map[string]*mean // cluster, algorithm, class
}

// mean collects the mean of what was added.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum += v; m.n++ }

func (m *mean) value() float64 { return m.sum / float64(m.n) }

// compare searches the highest loads of cases.
func (b *bench) compare(ctx context.Context, scenes []scene, m manner, p process, of []string) (*compared, error) {
	// Plans first, so that two searches of a case do not make the same one.
	if err := each(ctx, len(scenes), func(ctx context.Context, i int) error {
		for _, a := range of {
			if _, err := scenes[i].plan(ctx, a); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	all := make([]*found, len(scenes)*len(of))
	if err := each(ctx, len(all), func(ctx context.Context, i int) error {
		sc, algorithm := &scenes[i/len(of)], of[i%len(of)]
		s, err := b.subject(ctx, sc, algorithm, m.policy, m.network, p)
		if err != nil {
			return err
		}
		for k := range s.near {
			s.near[k] = b.near[nearKey(sc, algorithm, s.sc.Tables.Models[k].Name)]
		}
		all[i], err = s.find(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	for i, f := range all { // not before all are found, so that the order of the searches changes nothing
		for k, name := range f.models {
			b.near[nearKey(&scenes[i/len(of)], of[i%len(of)], name)] = int(math.Round(f.loads[k] * gridSteps))
		}
	}
	out := &compared{use: map[string]map[string]map[string]*mean{}}
	for i := range scenes {
		s := &scenes[i]
		setup := setups[strings.TrimSuffix(s.cluster, "-S")]
		classes := map[string]string{setup.high: "high", setup.low: "low"}
		first := all[i*len(of)]
		for k, name := range first.models {
			d := dnn{scene: s, model: name, load: map[string]float64{}}
			for a := range of {
				at := slices.Index(all[i*len(of)+a].models, name)
				if at < 0 {
					return nil, fmt.Errorf("%s: the %s plan has no model %s", s.name, of[a], first.models[k])
				}
				d.load[of[a]] = all[i*len(of)+a].loads[at]
			}
			out.dnns = append(out.dnns, d)
		}
		for a := range of {
			for kind, u := range all[i*len(of)+a].use {
				out.addUse(s.cluster, of[a], classes[kind], u)
				out.addUse("", of[a], classes[kind], u)
			}
		}
	}
	return out, nil
}

func nearKey(s *scene, algorithm, model string) string { return s.name + " " + algorithm + " " + model }

func (c *compared) addUse(cluster, algorithm, class string, u float64) {
	if c.use[cluster] == nil {
		c.use[cluster] = map[string]map[string]*mean{}
	}
	if c.use[cluster][algorithm] == nil {
		c.use[cluster][algorithm] = map[string]*mean{"high": {}, "low": {}}
	}
	c.use[cluster][algorithm][class].add(u)
}

// load is the mean highest load over the models of a cluster; "": of all.
func (c *compared) load(cluster, algorithm string) float64 {
	var m mean
	for i := range c.dnns {
		if cluster == "" || c.dnns[i].scene.cluster == cluster {
			m.add(c.dnns[i].load[algorithm])
		}
	}
	return m.value()
}

// ratios are how many times a plan's highest load PPipe's is, by model; models
// without any load under the other are left out and counted.
func (c *compared) ratios(cluster, algorithm string) (ratios []float64, none int) {
	for i := range c.dnns {
		d := &c.dnns[i]
		switch {
		case cluster != "" && d.scene.cluster != cluster:
		case d.load[algorithm] == 0:
			none++
		default:
			ratios = append(ratios, d.load["PPipe"]/d.load[algorithm])
		}
	}
	return ratios, none
}

// gain writes what PPipe brings over an algorithm: the mean of the ratios of
// single models, with its 95 % interval over models.
func (c *compared) gain(cluster, algorithm string) string {
	ratios, none := c.ratios(cluster, algorithm)
	if len(ratios) == 0 {
		return "-"
	}
	m, lo, _ := report.MeanInterval(ratios, 0.95)
	text := fmt.Sprintf("%+.1f %%", 100*(m-1))
	if cluster == "" && len(ratios) > 1 {
		text += fmt.Sprintf(" ± %.1f", 100*(m-lo))
	}
	if none > 0 {
		text += fmt.Sprintf(" (%d at none)", none)
	}
	return text
}

func (c *compared) usage(cluster, algorithm, class string) string {
	m := c.use[cluster][algorithm]
	if m == nil || m[class].n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", m[class].value())
}

func (c *compared) clusters() []string {
	seen := map[string]bool{}
	for i := range c.dnns {
		seen[c.dnns[i].scene.cluster] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// rows writes a row per algorithm.
func (c *compared) rows(w *tabwriter.Writer, lead string, of []string, columns []string) {
	for _, a := range of {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.3f", lead, a, len(c.dnns), c.load("", a))
		if a == "PPipe" {
			fmt.Fprintf(w, "\t-\t-")
		} else {
			fmt.Fprintf(w, "\t%s\t%+.1f %%", c.gain("", a), 100*(c.load("", "PPipe")/c.load("", a)-1))
		}
		fmt.Fprintf(w, "\t%s\t%s", c.usage("", a, "high"), c.usage("", a, "low"))
		for _, cluster := range columns {
			switch {
			case !slices.Contains(c.clusters(), cluster):
				fmt.Fprint(w, "\t")
			case a == "PPipe":
				fmt.Fprintf(w, "\t%.3f", c.load(cluster, a))
			default:
				fmt.Fprintf(w, "\t%.3f, %s", c.load(cluster, a), c.gain(cluster, a))
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

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
		processes, err := b.processes(cmp.Or(b.arrivals, arrivalsOf(&families[family][0])))
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
					promised = append(promised, fmt.Sprintf("%.3f, %.2f", plan.Promised(k).RPS/rates[d.model], d.load[a]))
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
			all = append(all, fmt.Sprintf("%s b%d %.0f/s %.0f%%", strings.Join(stages, " > "), pipe.Batch, pipe.RPS, 100*float64(pipe.LatencyUS)/float64(p.Promised(i).SLOUS)))
		}
	}
	return strings.Join(all, "; ")
}

func (b *bench) sensitivity(ctx context.Context, w *tabwriter.Writer) error {
	base := standard
	base.high, base.low = 4, 12
	p := process{name: "poisson", spec: poisson}
	of := []string{"PPipe", "NP"}
	sweeps := []struct {
		name   string
		values []float64
		set    func(v *variation, x float64)
		label  func(x float64) string
	}{
		{"SLO, times the L4's latency", []float64{2, 3, 4, 5, 7, 10}, func(v *variation, x float64) { v.sloScale = x }, func(x float64) string { return fmt.Sprintf("%gx", x) }},
		{"high:low devices", []float64{2, 4, 6, 8, 12}, func(v *variation, x float64) { v.high, v.low = int(x), 16-int(x) }, func(x float64) string { return fmt.Sprintf("%g:%g", x, 16-x) }},
		{"margin", []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, func(v *variation, x float64) { v.margin = x }, func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }},
	}
	fmt.Fprintln(w, "varied\tvalue\tDNNs\tPPipe load\tNP load\tPPipe's gain (mean of ratios)\t(ratio of means)\tPPipe rps planned\tsustained (mean over DNNs, of those at the standard setting)")
	rates := func(scenes []scene, c *compared, loads bool) (map[string]float64, error) {
		out := map[string]float64{}
		for i := range scenes {
			r, err := scenes[i].rates(ctx)
			if err != nil {
				return nil, err
			}
			maps.Copy(out, r)
		}
		for i := range c.dnns {
			if loads {
				out[c.dnns[i].model] *= c.dnns[i].load["PPipe"]
			}
		}
		return out, nil
	}
	at := func(v variation, what string) ([]scene, *compared, error) {
		matches, err := b.matcher(".")
		if err != nil {
			return nil, nil, err
		}
		scenes := slices.DeleteFunc(b.singly("sensitivity", "HC1-S", what, v), func(s scene) bool {
			if !matches(s.name) {
				return true
			}
			// An SLO that no plan meets has nothing to compare.
			_, err := s.plan(ctx, "NP")
			return err != nil && ctx.Err() == nil
		})
		if len(scenes) == 0 {
			return nil, nil, errNoCase
		}
		c, err := b.compare(ctx, scenes, asOurs, p, of)
		return scenes, c, err
	}
	scenes, c, err := at(base, "standard")
	if err != nil {
		return err
	}
	planned0, err := rates(scenes, c, false)
	if err != nil {
		return err
	}
	sustained0, err := rates(scenes, c, true)
	if err != nil {
		return err
	}
	for _, sweep := range sweeps {
		lines := []line{{name: "PPipe"}, {name: "NP"}}
		for _, x := range sweep.values {
			v := base
			sweep.set(&v, x)
			scenes, c, err := at(v, sweep.name+" "+sweep.label(x))
			if err != nil {
				return err
			}
			relative := func(loads bool, to map[string]float64) (string, error) {
				r, err := rates(scenes, c, loads)
				if err != nil {
					return "", err
				}
				var m mean
				for _, name := range sortedKeys(r) {
					if to[name] > 0 {
						m.add(r[name] / to[name])
					}
				}
				return fmt.Sprintf("%.3f", m.value()), nil
			}
			planned, err := relative(false, planned0)
			if err != nil {
				return err
			}
			sustained, err := relative(true, sustained0)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%.3f\t%.3f\t%s\t%+.1f %%\t%s\t%s\n", sweep.name, sweep.label(x), len(c.dnns), c.load("", "PPipe"), c.load("", "NP"), c.gain("", "NP"),
				100*(c.load("", "PPipe")/c.load("", "NP")-1), planned, sustained)
			w.Flush()
			for k := range lines {
				lines[k].points = append(lines[k].points, [2]float64{x, c.load("", lines[k].name)})
			}
		}
		name := strings.FieldsFunc(sweep.name, func(r rune) bool { return r < 'A' || r > 'z' })[0]
		if err := b.plot("sensitivity-"+strings.ToLower(name), sweep.name, sweep.name, "highest load factor at 99 %", lines); err != nil {
			return err
		}
	}
	return nil
}
