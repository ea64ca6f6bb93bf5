package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"inferplan/formats/report"
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
