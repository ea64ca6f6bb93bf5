package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// sweep is a setting that the sensitivity table varies.
type sweep struct {
	name   string
	values []float64
	set    func(v *variation, x float64)
	label  func(x float64) string
}

var sweeps = []sweep{
	{"SLO, times the L4's latency", []float64{2, 3, 4, 5, 7, 10}, func(v *variation, x float64) { v.sloScale = x }, func(x float64) string { return fmt.Sprintf("%gx", x) }},
	{"high:low devices", []float64{2, 4, 6, 8, 12}, func(v *variation, x float64) { v.high, v.low = int(x), 16-int(x) }, func(x float64) string { return fmt.Sprintf("%g:%g", x, 16-x) }},
	{"margin", []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, func(v *variation, x float64) { v.margin = x }, func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }},
}

// setting is the DNNs one at a time at one setting, compared.
type setting struct {
	*compared
	planned, sustained map[string]float64 // PPipe's requests/s, by DNN
}

// at compares plans at a setting.
func (b *bench) at(ctx context.Context, v variation, what string) (*setting, error) {
	matches, err := b.matcher(".")
	if err != nil {
		return nil, err
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
		return nil, errNoCase
	}
	out := &setting{planned: map[string]float64{}}
	if out.compared, err = b.compare(ctx, scenes, asOurs, process{name: "poisson", spec: poisson}, []string{"PPipe", "NP"}); err != nil {
		return nil, err
	}
	for i := range scenes {
		r, err := scenes[i].rates(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(out.planned, r)
	}
	out.sustained = maps.Clone(out.planned)
	for i := range out.dnns {
		out.sustained[out.dnns[i].model] *= out.dnns[i].load["PPipe"]
	}
	return out, nil
}

// relative is the mean of rates in parts of others, over the DNNs that have both.
func relative(rates, to map[string]float64) float64 {
	var m mean
	for _, name := range sortedKeys(rates) {
		if to[name] > 0 {
			m.add(rates[name] / to[name])
		}
	}
	return m.value()
}

func (b *bench) sensitivity(ctx context.Context, w *tabwriter.Writer) error {
	base := standard
	base.high, base.low = 4, 12
	fmt.Fprintln(w, "varied\tvalue\tDNNs\tPPipe load\tNP load\tPPipe's gain (mean of ratios)\t(ratio of means)\tPPipe rps planned\tsustained (mean over DNNs, of those at the standard setting)")
	first, err := b.at(ctx, base, "standard")
	if err != nil {
		return err
	}
	for _, sweep := range sweeps {
		lines := []line{{name: "PPipe"}, {name: "NP"}}
		for _, x := range sweep.values {
			v := base
			sweep.set(&v, x)
			c, err := b.at(ctx, v, sweep.name+" "+sweep.label(x))
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%.3f\t%.3f\t%s\t%+.1f %%\t%.3f\t%.3f\n", sweep.name, sweep.label(x), len(c.dnns), c.load("", "PPipe"), c.load("", "NP"), c.gain("", "NP"),
				100*(c.load("", "PPipe")/c.load("", "NP")-1), relative(c.planned, first.planned), relative(c.sustained, first.sustained))
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
