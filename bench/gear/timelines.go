package main

import (
	"fmt"
	"time"

	"gonum.org/v1/plot/plotter"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/pages/picture"
	"inferplan/planner/gear/cascades"
)

// scene is a family's trace with systems of different sizes, as in the paper's figures: our plans have fewer devices.
type scene struct {
	windows                       baseline.Sliding
	planner                       []int   // devices
	modelSwitching, single        int     // devices of MS+ and DynBa
	cocktailAccuracy, accuracySLO float64 // accuracySLO is 0 if the SLO is on latency
}

var (
	quickWindows = baseline.Sliding{Width: 10 * time.Second, Step: 2 * time.Second}
	slowWindows  = baseline.Sliding{Width: time.Minute, Step: 10 * time.Second}
	spikes       = map[string]scene{
		"bert5":  {quickWindows, []int{1, 2, 3}, 3, 4, .93, 0},
		"llama4": {slowWindows, []int{2, 4}, 4, 6, .63, 0},
		"imdb3":  {quickWindows, []int{2, 4}, 4, 6, .85, 0},
	}
	accuracySLOs = map[string]scene{
		"bert5":  {quickWindows, []int{1, 2}, 3, 4, .92, .92},
		"llama4": {slowWindows, []int{4, 6}, 8, 16, .63, .63},
		"imdb3":  {quickWindows, []int{2, 4}, 4, 6, .80, .80},
	}
)

// timeline is a system's run with its windows.
type timeline struct {
	name, devices string
	run           *baseline.Run
}

// spike shows systems through a spike under a latency SLO, as figure 8 does.
func spike(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	return spikes[f.Name].show(r, "spike", f, t, methodsByName["planner"])
}

// accuracySLO shows them under an accuracy SLO, as figure 9 does: every plan has the least latency at which its weighted accuracy is
// reached.
func accuracySLO(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	target := accuracySLOs[f.Name].accuracySLO
	return accuracySLOs[f.Name].show(r, "accuracy-slo", f, t, func(r *instrument.Run, p place, _ []stream) (*plan, error) {
		return makePlan(r, p, fmt.Sprintf("planner for accuracy %g", target), p.changed(func(q *cascades.Problem) { q.SLO, q.TargetAccuracy = 0, target }), solve)
	})
}

// show adds a row for every system, and writes their picture.
func (c scene) show(r *instrument.Run, part string, f *published.Family, t *instrument.Table, build method) error {
	t.Columns = []string{"workload", "system", "devices", "accuracy", "p95 ms", "highest p95 of a window", "windows late", "lowest accuracy of a window", "windows below the accuracy SLO"}
	var lines []timeline
	add := func(name string, v *system) error {
		run, err := v.run(r, even, "/"+c.windows.Width.String(), baseline.Watch{Windows: c.windows})
		lines = append(lines, timeline{name, fmt.Sprint(v.devices), run})
		return err
	}
	for _, devices := range c.planner {
		v, err := build(r, place{f, devices, f.SLO}, nil)
		if err == nil && v != nil {
			err = add("planner", v.system)
		}
		if err != nil {
			return err
		}
	}
	p := place{f, c.modelSwitching, f.SLO}
	v, err := methodsByName["MS+"](r, p, evenAlone)
	if err == nil && v != nil {
		err = add("MS+", v.system)
	}
	if err != nil {
		return err
	}
	p.devices = c.single
	q, err := p.problem()
	if err != nil {
		return err
	}
	largest := len(q.Models) - 1
	single := "DynBa " + q.Models[largest].Name
	if err := add(single, fixed(p, single, baseline.DynBa(q, largest))); err != nil {
		return err
	}
	e, err := cheapestEnsemble(r, f, c.cocktailAccuracy, c.windows)
	if err != nil {
		return err
	}
	if e != nil {
		lines = append(lines, timeline{"Cocktail+", fmt.Sprintf("%.2f", e.Mean), &baseline.Run{Accuracy: e.Accuracy, P95: e.P95, Windows: e.Windows}})
	}
	for i := range lines {
		t.Add(lines[i].row(f, &c)...)
	}
	svg, err := picture.Panels("s", c.panels(f, lines))
	if err != nil {
		return err
	}
	return r.WriteFile(fmt.Sprintf("timeline-%s-%s.svg", part, f.Name), svg)
}

// row sums a timeline up. Accuracies of windows are those of the gears in force: a window's own is scattered by the samples that it
// happens to see.
func (l *timeline) row(f *published.Family, c *scene) []any {
	lowest, highest := 1.0, time.Duration(0)
	late, below := 0, 0
	for _, w := range l.run.Windows {
		lowest, highest = min(lowest, w.Expected), max(highest, w.P95)
		if w.P95 > f.SLO {
			late++
		}
		if w.Expected < c.accuracySLO-tolerance {
			below++
		}
	}
	share := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(len(l.run.Windows))) }
	return []any{f.Name, l.name, l.devices, digits(l.run.Accuracy), wholeMS(l.run.P95), wholeMS(highest), share(late), digits(lowest), share(below)}
}

// panels returns the picture of timelines: rates, accuracies and p95 over time, with the SLOs as rules.
func (c *scene) panels(f *published.Family, lines []timeline) []picture.Panel {
	curve := func(name string, run *baseline.Run, value func(*baseline.Window) float64) picture.Line {
		line := picture.Line{Name: name}
		for i := range run.Windows {
			w := &run.Windows[i]
			line.Points = append(line.Points, plotter.XY{X: (w.From + c.windows.Width/2).Seconds(), Y: value(w)})
		}
		return line
	}
	rate := func(w *baseline.Window) float64 { return float64(w.Requests) / c.windows.Width.Seconds() }
	panels := []picture.Panel{
		{Title: f.Name + ": requests/s", FromZero: true, Lines: []picture.Line{curve("", lines[0].run, rate)}},
		{Title: fmt.Sprintf("accuracy of the gears in force, windows of %v", c.windows.Width), Limit: c.accuracySLO},
		{Title: "p95 in ms, and the SLO", Logarithmic: true, Limit: ms(f.SLO)},
	}
	for _, l := range lines {
		name := l.name + ", " + l.devices + " devices"
		if l.devices == "1" {
			name = l.name + ", 1 device"
		}
		panels[1].Lines = append(panels[1].Lines, curve(name, l.run, func(w *baseline.Window) float64 { return w.Expected }))
		panels[2].Lines = append(panels[2].Lines, curve(name, l.run, func(w *baseline.Window) float64 { return ms(w.P95) }))
	}
	return panels
}
