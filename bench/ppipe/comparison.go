package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"inferplan/bench/instrument"
)

// dnn is one model of a case, with its highest load under each algorithm.
type dnn struct {
	cluster, model string
	load           map[string]float64
}

// comparison is the highest load of every model of some cases under every
// algorithm, and the use of high and low device kinds by algorithm and case.
type comparison struct {
	dnns []dnn
	use  map[string]map[string][]float64 // algorithm, class
}

// compare searches the highest loads of cases.
func (b *bench) compare(scenes []scene, m manner, p process, names []string) (*comparison, error) {
	// Plans first, so that two searches of a case do not make the same one.
	if err := b.ForEach(len(scenes), func(ctx context.Context, i int) error {
		for _, name := range names {
			if _, err := scenes[i].plan(ctx, name); err != nil {
				return fmt.Errorf("%s, %s: %w", scenes[i].name, name, err)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	all := make([]*highestLoads, len(scenes)*len(names))
	if err := b.ForEach(len(all), func(ctx context.Context, i int) error {
		s, err := b.subject(ctx, &scenes[i/len(names)], names[i%len(names)], m, p)
		if err != nil {
			return err
		}
		all[i], err = s.find(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	out := &comparison{use: map[string]map[string][]float64{}}
	for i := range scenes {
		s := &scenes[i]
		setup := setups[strings.TrimSuffix(s.cluster, "-S")]
		first := all[i*len(names)]
		for _, model := range first.models {
			d := dnn{s.cluster, model, map[string]float64{}}
			for a, name := range names {
				load, ok := all[i*len(names)+a].loads[model]
				if !ok {
					return nil, fmt.Errorf("%s: the %s plan has no model %s", s.name, name, model)
				}
				d.load[name] = load
			}
			out.dnns = append(out.dnns, d)
		}
		for a, name := range names {
			if out.use[name] == nil {
				out.use[name] = map[string][]float64{}
			}
			for kind, share := range all[i*len(names)+a].use {
				out.use[name][setup.class(kind)] = append(out.use[name][setup.class(kind)], share)
			}
		}
	}
	return out, nil
}

// load is the mean highest load over the models of a cluster; "": of all.
func (c *comparison) load(cluster, algorithm string) float64 {
	var loads []float64
	for i := range c.dnns {
		if cluster == "" || c.dnns[i].cluster == cluster {
			loads = append(loads, c.dnns[i].load[algorithm])
		}
	}
	return mean(loads)
}

// ratios are how many times a plan's highest load PPipe's is, by model; models
// without any load under the other are left out and counted.
func (c *comparison) ratios(cluster, algorithm string) (ratios []float64, none int) {
	for i := range c.dnns {
		d := &c.dnns[i]
		switch {
		case cluster != "" && d.cluster != cluster:
		case d.load[algorithm] == 0:
			none++
		default:
			ratios = append(ratios, d.load["PPipe"]/d.load[algorithm])
		}
	}
	return ratios, none
}

// gain says what PPipe brings over an algorithm: the mean of the ratios of
// single models, with its 95 % interval over models.
func (c *comparison) gain(cluster, algorithm string) string {
	ratios, none := c.ratios(cluster, algorithm)
	if len(ratios) == 0 || algorithm == "PPipe" {
		return "-"
	}
	ratio, interval := instrument.Mean(ratios)
	text := fmt.Sprintf("%+.1f %%", 100*(ratio-1))
	if cluster == "" && interval != nil {
		text += fmt.Sprintf(" ± %.1f", 100*(ratio-interval[0]))
	}
	if none > 0 {
		text += fmt.Sprintf(" (%d at none)", none)
	}
	return text
}

// rows adds a row per algorithm, with columns for some clusters.
func (c *comparison) rows(t *instrument.Table, cases, arrivals string, m manner, columns []string) {
	for _, a := range algorithms {
		row := []any{cases, arrivals, fmt.Sprintf("%s, %s", m.policy, m.network), a, len(c.dnns), fmt.Sprintf("%.3f", c.load("", a)), c.gain("", a),
			fmt.Sprintf("%+.1f %%", 100*(c.load("", "PPipe")/c.load("", a)-1)), fmt.Sprintf("%.3f", mean(c.use[a]["high"])), fmt.Sprintf("%.3f", mean(c.use[a]["low"]))}
		for _, cluster := range columns {
			cell := ""
			if load := c.load(cluster, a); !math.IsNaN(load) {
				cell = fmt.Sprintf("%.3f, %s", load, c.gain(cluster, a))
			}
			row = append(row, cell)
		}
		t.Add(row...)
	}
}

// gains states PPipe's highest load over that of the other algorithms where the paper has a figure: of Poisson arrivals, and of a bursty
// trace as which gamma gaps of CV 1.5 stand.
func (b *bench) gains(c *comparison, family, command string, p process) {
	paper := map[string]map[string]float64{"poisson": {"NP": 48, "DART-r": 32}, "gamma:1.5": {"NP": 75, "DART-r": 36}}[p.name]
	for _, a := range []string{"NP", "DART-r"} {
		ratios, none := c.ratios("", a)
		if len(ratios) < 2 || paper == nil {
			continue
		}
		ratio, interval := instrument.Mean(ratios)
		f := b.AtLeast(fmt.Sprintf("highest load of PPipe above that of %s, mean of ratios, %s, %s, %s on %s", a, family, p.name, asArtifact.policy, asArtifact.network),
			"PPipe (USENIX ATC 2025), figure 6", paper[a], "%", 100*(ratio-1))
		f.Interval = &[2]float64{100 * (interval[0] - 1), 100 * (interval[1] - 1)}
		f.Note = fmt.Sprintf("%d DNNs, %d of them at no load; PPipe %.3f, %s %.3f", len(c.dnns), none, c.load("", "PPipe"), a, c.load("", a))
		f.Command = command
	}
}
