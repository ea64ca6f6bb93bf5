package pages

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/pages/picture"
)

// ReportPage returns the page about runs, the first as the reference. comparison is the table of their figures, lines is what has
// to be said about them, and plan is what ran, or nil.
func ReportPage(plan *formats.Plan, runs []Run, comparison Table, lines []string) (*Page, error) {
	names := runNames(runs)
	reports := reportsOf(runs)
	p := &Page{Title: strings.Join(names, " against "), Sentence: Sentence(names, reports), Lines: lines}
	for _, section := range []func(*formats.Plan, []Run) (Section, error){
		func(_ *formats.Plan, runs []Run) (Section, error) { return comparisonSection(runs, comparison) },
		func(plan *formats.Plan, _ []Run) (Section, error) { return PlanSection(plan), nil },
		loadSection, latencySection, windowSection, timelineSection, classSection, moduleSection, dropSection, gearSection,
	} {
		s, err := section(plan, runs)
		if err != nil {
			return nil, err
		}
		if len(s.Lines) > 0 || s.Table != nil || len(s.Pictures) > 0 || len(s.Devices) > 0 {
			p.Sections = append(p.Sections, s)
		}
	}
	return p, nil
}

// runNames returns the names of runs, whose colours are the same in all pictures that compare them.
func runNames(runs []Run) []string {
	return document.Map(runs, func(r *Run) string { return r.Name })
}

// reportsOf returns the reports of runs.
func reportsOf(runs []Run) []*formats.Report {
	return document.Map(runs, func(r *Run) *formats.Report { return r.Report })
}

// PlanSection says what runs where. It is empty without a plan.
func PlanSection(plan *formats.Plan) Section {
	if plan == nil {
		return Section{}
	}
	return Section{Title: "What runs where", Text: "A bar is a group of devices on which the same parts run, with their shares of each device. Busy is the planned rate over what the part could carry.", Devices: DeviceRows(plan)}
}

// keys returns the models of all reports, and before them all models together if there are several.
func keys(runs []Run) []formats.ModelClass {
	out := ModelClasses(reportsOf(runs))
	if len(out) > 1 {
		out = append([]formats.ModelClass{{}}, out...)
	}
	return out
}

// keyName returns the name of a model, or "all" for all models together.
func keyName(key formats.ModelClass) string {
	if key == (formats.ModelClass{}) {
		return "all"
	}
	return key.String()
}

// findRow returns the figures of a model in a run, or nil. With one model the empty key is that of all.
func findRow(r *Run, key formats.ModelClass) *Row {
	rows := Rows(r.Name, r.Report)
	return document.First(rows, func(row *Row) bool { return row.ModelClass == key })
}

// barPicture draws a figure of each model with a bar for each run.
func barPicture(title string, runs []Run, limit float64, value func(row *Row) (float64, bool)) ([]Picture, error) {
	// A model without a value in any run has no row.
	list := slices.DeleteFunc(keys(runs), func(key formats.ModelClass) bool {
		return !slices.ContainsFunc(runs, func(r Run) bool {
			row := findRow(&r, key)
			if row == nil {
				return false
			}
			_, ok := value(row)
			return ok
		})
	})
	panel := bars(document.Map(list, func(k *formats.ModelClass) string { return keyName(*k) }), runNames(runs), func(i, k int) (float64, bool) {
		row := findRow(&runs[k], list[i])
		if row == nil {
			return 0, false
		}
		return value(row)
	})
	panel.LimitX = limit
	return newPicture(title, picture.Figure{Legend: runNames(runs), Panels: []picture.Panel{panel}})
}

func comparisonSection(runs []Run, comparison Table) (Section, error) {
	s := Section{Title: "Promised against measured", Table: &comparison}
	if len(runs) == 1 {
		s.Title = "Figures"
	} else {
		s.Text = "The first report is the reference; differences are against it."
	}
	attainment, err := barPicture("Requests answered in time, %", runs, 0, func(r *Row) (float64, bool) { return 100 * r.Attainment, r.Requests > 0 })
	if err != nil {
		return s, err
	}
	tails, err := barPicture("p99 of the latency, % of the SLO (dashed: the SLO)", runs, 100, func(r *Row) (float64, bool) {
		return 100 * float64(r.Latency.P99US) / max(float64(r.SLO), 1), r.ModelClass != (formats.ModelClass{}) && r.SLO > 0 && r.Completed > 0
	})
	s.Pictures = append(attainment, tails...)
	return s, err
}

func loadSection(_ *formats.Plan, runs []Run) (Section, error) {
	s := Section{Title: "Load against attainment", Text: "Load 1 is the planned rate. The dashed line is the share that has to be in time."}
	for i := range runs {
		curve := runs[i].Report.Curve
		if len(curve) == 0 {
			continue
		}
		panel := picture.Panel{Vertical: "in time %"}
		for k, m := range curve[0].Models {
			line := picture.Line{Name: formats.ModelClass{Model: m.Model, Class: m.Class}.String(), Marks: true}
			for _, point := range curve {
				if k >= len(point.Models) {
					continue
				}
				line.Points = append(line.Points, plotter.XY{X: point.Load, Y: 100 * point.Models[k].Attainment})
			}
			panel.Lines = append(panel.Lines, line)
		}
		for _, m := range runs[i].Report.Models {
			panel.Limit = max(panel.Limit, 100*document.ShareAt(m.Percentile))
		}
		pictures, err := newPicture(runs[i].Name, picture.Figure{Horizontal: "load", Panels: []picture.Panel{panel}})
		if err != nil {
			return s, err
		}
		s.Pictures = append(s.Pictures, pictures...)
	}
	return s, nil
}

// shownModels bounds the models that get a picture of their own.
const shownModels = 12

func latencySection(_ *formats.Plan, runs []Run) (Section, error) {
	s := Section{Title: "Latency", Text: "The share of the answers that is at least as fast. The dashed line is the SLO."}
	models := ModelClasses(reportsOf(runs))
	if len(models) > shownModels {
		s.Text += fmt.Sprintf(" The first %d of %d models.", shownModels, len(models))
		models = models[:shownModels]
	}
	for _, key := range models {
		panel := picture.Panel{Vertical: "ms", FromZero: true}
		for k := range runs {
			if row := findRow(&runs[k], key); row != nil && panel.Limit == 0 && runs[k].Report.FigureOf(key.Class) == "" {
				panel.Limit = millis(row.SLO)
			}
			if points := runs[k].latencies(key); len(points) > 0 {
				panel.Lines = append(panel.Lines, picture.Line{Name: runs[k].Name, Points: points, Marks: len(points) < 10})
			}
		}
		pictures, err := newPicture(key.String(), picture.Figure{Legend: runNames(runs), Ticks: percentileTicks, Panels: []picture.Panel{panel}})
		if err != nil {
			return s, err
		}
		s.Pictures = append(s.Pictures, pictures...)
	}
	return s, nil
}

func windowSection(_ *formats.Plan, runs []Run) (Section, error) {
	s := Section{Title: "Over time", Text: "All models together, by the time of the arrival."}
	for _, figure := range []struct {
		title    string
		fromZero bool
		value    func(w *formats.WindowReport, seconds float64) float64 // seconds of all runs together
	}{
		{"Requests per second", true, func(w *formats.WindowReport, seconds float64) float64 { return float64(w.Requests) / seconds }},
		{"Requests answered in time, %", false, func(w *formats.WindowReport, _ float64) float64 { return 100 * w.Attainment }},
		{"p95 of the latency, ms", true, func(w *formats.WindowReport, _ float64) float64 { return millis(w.P95US) }},
	} {
		panel := picture.Panel{FromZero: figure.fromZero}
		for i := range runs {
			r := &runs[i]
			runCount := float64(max(r.Report.Runs, 1))
			if points := r.windows(func(w *formats.WindowReport, seconds float64) float64 { return figure.value(w, seconds*runCount) }); len(points) > 0 {
				panel.Lines = append(panel.Lines, picture.Line{Name: r.Name, Points: points})
			}
		}
		pictures, err := newPicture(figure.title, picture.Figure{Legend: runNames(runs), Horizontal: "seconds", Panels: []picture.Panel{panel}})
		if err != nil {
			return s, err
		}
		s.Pictures = append(s.Pictures, pictures...)
	}
	return s, nil
}

func timelineSection(_ *formats.Plan, runs []Run) (Section, error) {
	s := Section{Title: "Devices, queues and gears over time"}
	for i := range runs {
		if runs[i].Timeline == nil {
			continue
		}
		pictures, err := runs[i].Timeline.pictures()
		if err != nil {
			return s, err
		}
		for k := range pictures {
			pictures[k].Title = runs[i].Name + ": " + pictures[k].Title
		}
		s.Pictures = append(s.Pictures, pictures...)
	}
	return s, nil
}

func classSection(_ *formats.Plan, runs []Run) (Section, error) {
	t := Table{Align: "llrrrrr", Header: []string{"report", "class", "requests", "in time", "whole answer p99 ms", "first token p99 ms", "per token p99 ms"}}
	for i := range runs {
		for _, c := range runs[i].Report.Classes {
			t.Rows = append(t.Rows, []string{runs[i].Name, c.Class, fmt.Sprint(c.Requests), Attainment(c.Attainment, c.Requests), Latency(c.E2EP99US, c.Requests), Latency(c.TTFTP99US, c.Requests), Latency(c.TPOTP99US, c.Requests)})
		}
	}
	return tableSection("Classes", t), nil
}

func tableSection(title string, t Table) Section {
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{Title: title, Table: &t}
}

func moduleSection(_ *formats.Plan, runs []Run) (Section, error) {
	t := Table{Align: "llrrrrr", Header: []string{"report", "module", "tasks", "dropped", "run ms", "batch", "device time in vain"}}
	var modules []string
	dropped := map[[2]string]float64{}
	for i := range runs {
		for _, m := range runs[i].Report.Modules {
			t.Rows = append(t.Rows, []string{runs[i].Name, m.Module, fmt.Sprint(m.Requests), fmt.Sprint(m.Dropped), document.FormatMillis(m.RunUS.D()), fmt.Sprintf("%.2f", m.Batch), percent(m.InvalidShare)})
			dropped[[2]string{runs[i].Name, m.Module}] = float64(m.Dropped)
			if !slices.Contains(modules, m.Module) {
				modules = append(modules, m.Module)
			}
		}
	}
	s := tableSection("Modules", t)
	if len(modules) == 0 {
		return s, nil
	}
	var err error
	s.Pictures, err = countPicture("Requests dropped because of a module", modules, runs, dropped)
	return s, err
}

// countPicture draws counts by run and name, a row for each name.
func countPicture(title string, names []string, runs []Run, counts map[[2]string]float64) ([]Picture, error) {
	panel := bars(names, runNames(runs), func(i, k int) (float64, bool) {
		n, ok := counts[[2]string{runs[k].Name, names[i]}]
		return n, ok
	})
	return newPicture(title, picture.Figure{Legend: runNames(runs), Panels: []picture.Panel{panel}})
}

func dropSection(_ *formats.Plan, runs []Run) (Section, error) {
	s := Section{Title: "Dropped requests"}
	counts, reasons := map[[2]string]float64{}, map[string]bool{}
	for i := range runs {
		for reason, n := range runs[i].Report.DroppedByReason {
			counts[[2]string{runs[i].Name, reason}], reasons[reason] = float64(n), true
		}
	}
	if len(reasons) == 0 {
		return s, nil
	}
	var err error
	s.Pictures, err = countPicture("By reason", slices.Sorted(maps.Keys(reasons)), runs, counts)
	return s, err
}

func gearSection(_ *formats.Plan, runs []Run) (Section, error) {
	s := Section{Title: "Gears"}
	counts := map[[2]string]float64{}
	var names []string
	for i := range runs {
		g := runs[i].Report.Gears
		if g == nil {
			continue
		}
		s.Lines = append(s.Lines, fmt.Sprintf("%s: %s", runs[i].Name, document.CountOf(int(g.Switches), "change")+" of the gear"))
		for k, n := range g.RequestsByGear {
			name := fmt.Sprintf("gear %d", k)
			counts[[2]string{runs[i].Name, name}] = float64(n)
			if k == len(names) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return s, nil
	}
	var err error
	s.Pictures, err = countPicture("Requests that arrived under each gear", names, runs, counts)
	return s, err
}
