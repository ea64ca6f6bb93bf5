package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/bench/instrument"
	"inferplan/bench/table"
)

// processesOf returns the arrivals under which part load shows a case: bursty ones for those weighted as maf21. Those weighted equally
// and those that we planned, which would take as long again, have a part of them.
func (b *bench) processesOf(s *scene) ([]process, error) {
	switch {
	case !strings.HasSuffix(s.family, "21"):
		return []process{poisson}, nil
	case s.ref == nil:
		return []process{gamma(1.5)}, nil
	}
	minutes, err := b.azureMinutes()
	if err != nil || strings.HasSuffix(s.name, "/w1-1-1") {
		return []process{gamma(1.5), minutes}, err
	}
	seconds, err := b.twitter()
	return []process{gamma(1.5), gamma(2), minutes, seconds}, err
}

// load compares the algorithms.
func (b *bench) load(_ *instrument.Run, t *table.Table) error {
	scenes, err := b.scenes("^maf|^ours", b.recorded(algorithms...), b.ours("ours19", weights19), b.ours("ours21", weights21))
	if err != nil {
		return err
	}
	families := map[string][]scene{}
	for _, s := range scenes {
		family := s.family
		if _, weights, ok := strings.Cut(s.name, s.cluster+"/"); ok { // recorded twice, with weights of their own
			family += " " + weights
		}
		families[family] = append(families[family], s)
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		processes, err := b.processesOf(&families[family][0])
		if err != nil {
			return err
		}
		for _, p := range processes {
			for _, m := range []manner{asArtifact, asOurs} {
				c, err := b.compare(families[family], m, p, algorithms)
				if err != nil {
					return err
				}
				c.rows(t, family, p.name, m, clusters)
				if m == asArtifact {
					b.gains(c, family, b.Command("parts", "load", "cases", cmp.Or(b.cases, "^"+family)), p)
				}
			}
		}
	}
	return nil
}

// baselines holds our NP and DART-r plans of recorded cases against the recorded ones:
// the highest load of each DNN, where load 1 is the promise of the recorded PPipe plan.
func (b *bench) baselines(_ *instrument.Run, t *table.Table) error {
	recordedCases, err := b.scenes("^maf19/", b.recorded(algorithms...))
	if err != nil {
		return err
	}
	ownCases, err := b.scenes("^maf19/", b.recorded("PPipe")) // whose other plans are ours
	if err != nil {
		return err
	}
	recordedLoads, err := b.compare(recordedCases, asArtifact, poisson, algorithms)
	if err != nil {
		return err
	}
	ownLoads, err := b.compare(ownCases, asArtifact, poisson, algorithms)
	if err != nil {
		return err
	}
	recordedLoads.rows(t, "recorded", poisson.name, asArtifact, nil)
	ownLoads.rows(t, "ours", poisson.name, asArtifact, nil)
	for _, a := range []string{"DART-r", "NP"} {
		b.state(fmt.Sprintf("highest load of our %s plans over that of the recorded ones, mean of %d DNNs", a, len(ownLoads.dnns)), "PPipe (USENIX ATC 2025), recorded plans", "at least", -0.01, "",
			fmt.Sprintf("ours %.3f, recorded %.3f; Poisson, the artifact's dispatch", ownLoads.load("", a), recordedLoads.load("", a)), ownLoads.load("", a)-recordedLoads.load("", a))
	}
	return nil
}

// curve shows the attainment at every second step of the grid, mean over the models of a case.
func (b *bench) curve(r *instrument.Run, t *table.Table) error {
	scenes, err := b.scenes(`^maf19/G1/`, b.recorded(algorithms...))
	if err != nil {
		return err
	}
	t.Columns = []string{"case", "plan"}
	for step := 2; step <= gridSteps; step += 2 {
		t.Columns = append(t.Columns, fmt.Sprintf("%.1f", float64(step)/gridSteps))
	}
	t.Columns = append(t.Columns, "highest load of each DNN")
	for i := range scenes {
		for _, a := range algorithms {
			s, err := b.subject(r.Ctx, &scenes[i], a, asArtifact, poisson)
			if err != nil {
				return err
			}
			row := []any{scenes[i].name, a}
			for step := 2; step <= gridSteps; step += 2 {
				var attainments []float64
				for m := range s.sc.Tables.Models {
					p, err := s.simulate(r.Ctx, m, step)
					if err != nil {
						return err
					}
					attainments = append(attainments, p.Models[m].attained())
				}
				row = append(row, fmt.Sprintf("%.4f", mean(attainments)))
			}
			f, err := s.find(r.Ctx)
			if err != nil {
				return err
			}
			t.Add(append(row, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(f.loads), "map["), "]"))...)
		}
	}
	return nil
}

// smallSetting are the clusters of 16 devices.
var smallSetting = variation{high: 4, low: 12, sloScale: standard.sloScale, margin: standard.margin}

// small compares the algorithms on the DNNs one at a time.
func (b *bench) small(_ *instrument.Run, t *table.Table) error {
	for _, m := range []manner{asArtifact, asOurs} {
		for _, cluster := range clusters {
			scenes, err := b.scenes(".", b.singly("small", cluster+"-S", "", smallSetting))
			if err == errNoCase {
				continue
			}
			if err != nil {
				return err
			}
			c, err := b.compare(scenes, m, poisson, algorithms)
			if err != nil {
				return err
			}
			c.rows(t, cluster+"-S", poisson.name, m, nil)
		}
	}
	if len(t.Rows) == 0 {
		return errNoCase
	}
	return nil
}

// sweeps are the settings that part sensitivity varies.
var sweeps = []struct {
	name   string
	values []float64
	set    func(v *variation, x float64)
	label  func(x float64) string
}{
	{"SLO, times the L4's latency", []float64{2, 3, 4, 5, 7, 10}, func(v *variation, x float64) { v.sloScale = x }, func(x float64) string { return fmt.Sprintf("%gx", x) }},
	{"high:low devices", []float64{2, 4, 6, 8, 12}, func(v *variation, x float64) { v.high, v.low = int(x), 16-int(x) }, func(x float64) string { return fmt.Sprintf("%g:%g", x, 16-x) }},
	{"margin", []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, func(v *variation, x float64) { v.margin = x }, func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }},
}

// sensitivity varies one setting after the other. Rates are those of PPipe's plans, in parts of those at the standard setting.
func (b *bench) sensitivity(r *instrument.Run, t *table.Table) error {
	standardRates, _, err := b.sensitivityAt(r.Ctx, smallSetting, "standard")
	if err != nil {
		return err
	}
	for _, sweep := range sweeps {
		for _, x := range sweep.values {
			v := smallSetting
			sweep.set(&v, x)
			rates, c, err := b.sensitivityAt(r.Ctx, v, sweep.name+" "+sweep.label(x))
			if err != nil {
				return err
			}
			var planned, sustained []float64
			for _, model := range slices.Sorted(maps.Keys(rates)) {
				base, ok := standardRates[model]
				if ok {
					planned = append(planned, rates[model][0]/base[0])
				}
				if base[1] > 0 {
					sustained = append(sustained, rates[model][1]/base[1])
				}
			}
			t.Add(sweep.name, sweep.label(x), len(c.dnns), fmt.Sprintf("%.3f", c.load("", "PPipe")), fmt.Sprintf("%.3f", c.load("", "NP")), c.gain("", "NP"), fmt.Sprintf("%.3f", mean(planned)), fmt.Sprintf("%.3f", mean(sustained)))
		}
	}
	return nil
}

// sensitivityAt compares plans at a setting, and returns PPipe's requests/s by model: planned and sustained.
func (b *bench) sensitivityAt(ctx context.Context, v variation, label string) (map[string][2]float64, *comparison, error) {
	scenes, err := b.scenes(".", b.singly("sensitivity", "HC1-S", label, v))
	if err != nil {
		return nil, nil, err
	}
	scenes = slices.DeleteFunc(scenes, func(s scene) bool { // an SLO that no plan meets has nothing to compare
		_, err := s.plan(ctx, "NP")
		return err != nil && ctx.Err() == nil
	})
	c, err := b.compare(scenes, asOurs, poisson, []string{"PPipe", "NP"})
	if err != nil {
		return nil, nil, err
	}
	rates := map[string][2]float64{}
	for i := range scenes {
		planned, err := scenes[i].rates(ctx)
		if err != nil {
			return nil, nil, err
		}
		d := &c.dnns[i] // a case has one model
		rates[d.model] = [2]float64{planned[d.model], planned[d.model] * d.load["PPipe"]}
	}
	return rates, c, nil
}
