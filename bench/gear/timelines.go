package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/planner/gear/cascades"
)

var timelineColumns = []string{"workload", "system", "devices", "accuracy", "p95 ms", "accuracy before, at the peak", "p95 ms before, at the peak",
	"highest p95 of a window", "windows late", "lowest accuracy of a window", "windows below", "back after", "switches"}

// scene is a family's trace with systems of different sizes, as in the paper's
// figures: ours has fewer devices.
type scene struct {
	windows             baseline.Sliding
	planner             []int
	switching, single   int
	target, accuracySLO float64 // of Cocktail+, and what the second figure asks for
}

var (
	quick  = baseline.Sliding{Width: 10 * time.Second, Step: 2 * time.Second}
	slow   = baseline.Sliding{Width: time.Minute, Step: 10 * time.Second}
	spikes = map[string]scene{
		"bert5":  {windows: quick, planner: []int{1, 2, 3}, switching: 3, single: 4, target: .93},
		"llama4": {windows: slow, planner: []int{2, 4}, switching: 4, single: 6, target: .63},
		"imdb3":  {windows: quick, planner: []int{2, 4}, switching: 4, single: 6, target: .85},
	}
	accuracySLOs = map[string]scene{
		"bert5":  {windows: quick, planner: []int{1, 2}, switching: 3, single: 4, target: .92, accuracySLO: .92},
		"llama4": {windows: slow, planner: []int{4, 6}, switching: 8, single: 16, target: .63, accuracySLO: .63},
		"imdb3":  {windows: quick, planner: []int{2, 4}, switching: 4, single: 6, target: .80, accuracySLO: .80},
	}
)

// line is a system's time line.
type line struct {
	name    string
	devices string
	run     *baseline.Run
}

// spike is figure 8: the SLO is on latency.
func (b *bench) spike(f *published.Family, t *table.Table) error {
	return b.scene("spike", f, t, spikes[f.Name], b.ours)
}

// accuracySLO is figure 9: every plan has the least latency at which its
// weighted accuracy is reached.
func (b *bench) accuracySLO(f *published.Family, t *table.Table) error {
	s := accuracySLOs[f.Name]
	return b.scene("accuracy-slo", f, t, s, func(p place) (*plan, error) {
		return b.planned(p, fmt.Sprintf("planner for accuracy %g", s.accuracySLO), func() (*cascades.Problem, error) {
			prob, err := b.problem(p)
			if err != nil {
				return nil, err
			}
			prob.SLO, prob.TargetAccuracy = 0, s.accuracySLO
			return prob, nil
		})
	})
}

func (b *bench) scene(name string, f *published.Family, t *table.Table, s scene, ours func(place) (*plan, error)) error {
	var lines []line
	add := func(name string, devices int, sys *system) error {
		r, err := b.show(sys, even, s.windows)
		if err != nil {
			return err
		}
		lines = append(lines, line{name, strconv.Itoa(devices), r})
		return nil
	}
	for _, d := range s.planner {
		v, err := ours(place{f, d, f.SLO})
		if err != nil {
			return err
		}
		if !v.OK {
			t.Note("%s: no plan on %d devices.", f.Name, d)
			continue
		}
		if err := add("planner", d, v.system); err != nil {
			return err
		}
	}
	p := place{f, s.switching, f.SLO}
	v, err := b.tuned(p, []stream{even}, alone(baseline.BestModelSwitching))
	if err != nil {
		return err
	}
	if v != nil {
		if err := add("MS+", p.devices, fixed(p, v.Name, v.Tables)); err != nil {
			return err
		}
	}
	p.devices = s.single
	prob, err := b.problem(p)
	if err != nil {
		return err
	}
	largest := len(prob.Models) - 1
	single := "DynBa " + prob.Models[largest].Name
	if err := add(single, p.devices, fixed(p, single, baseline.DynBa(prob, largest))); err != nil {
		return err
	}
	e, err := b.ensemble(f, s.target, 1, s.windows)
	if err != nil {
		return err
	}
	if len(e.Models) > 0 {
		lines = append(lines, line{"Cocktail+", fmt.Sprintf("%.2f", e.Mean), &baseline.Run{Accuracy: e.Accuracy, P95: e.P95, Windows: e.Windows}})
	}
	if b.counting != nil {
		return nil
	}
	for i := range lines {
		t.Add(lines[i].row(f, s)...)
	}
	file := fmt.Sprintf("timeline-%s-%s", name, f.Name)
	if err := b.csv(file, []string{"from_s", "system", "devices", "rps", "accuracy", "accuracy_of_gears", "p95_ms"}, timelineRows(lines, s.windows)); err != nil {
		return err
	}
	return b.file(file+".svg", func(w io.Writer) error { return drawTimeline(w, f, s, lines) })
}

// row sums a time line up. Accuracies of windows are those of the gears in
// force: a window's own is scattered by the samples that it happens to see.
func (l *line) row(f *published.Family, s scene) []any {
	windows := l.run.Windows
	top := 0
	for i := range windows {
		if windows[i].Requests > windows[top].Requests {
			top = i
		}
	}
	peak := &windows[top]
	before := peak
	lowest, highest := 1.0, time.Duration(0)
	late, below := 0, 0
	for i := range windows {
		w := &windows[i]
		if w.From < peak.From && w.From >= peak.From-6*s.windows.Width && w.Requests < before.Requests {
			before = w
		}
		lowest, highest = min(lowest, w.Expected), max(highest, w.P95)
		if w.P95 > f.SLO {
			late++
		}
		if w.Expected < s.accuracySLO-5e-5 {
			below++
		}
	}
	back := "-"
	for i := top; i < len(windows); i++ {
		if w := &windows[i]; w.Expected >= before.Expected-.001 && w.P95 <= f.SLO {
			back = fmt.Sprint(w.From - peak.From)
			break
		}
	}
	share := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(len(windows))) }
	under := ""
	if s.accuracySLO > 0 {
		under = share(below)
	}
	return []any{f.Name, l.name, l.devices, digits(l.run.Accuracy), whole(ms(l.run.P95)), digits(before.Expected) + ", " + digits(peak.Expected),
		whole(ms(before.P95)) + ", " + whole(ms(peak.P95)), whole(ms(highest)), share(late), digits(lowest), under, back, l.run.Switches}
}

func timelineRows(lines []line, windows baseline.Sliding) [][]string {
	var out [][]string
	for _, l := range lines {
		for i := range l.run.Windows {
			w := &l.run.Windows[i]
			devices := l.devices
			if w.Devices > 0 {
				devices = fmt.Sprintf("%.2f", w.Devices)
			}
			out = append(out, []string{strconv.FormatFloat(w.From.Seconds(), 'f', -1, 64), l.name, devices,
				fmt.Sprintf("%.1f", float64(w.Requests)/windows.Width.Seconds()), digits(w.Accuracy), digits(w.Expected), fmt.Sprintf("%.1f", ms(w.P95))})
		}
	}
	return out
}
