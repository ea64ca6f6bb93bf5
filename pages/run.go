package pages

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/outcomes"
	"inferplan/formats/report"
	"inferplan/pages/picture"
)

// Run is a report with the files that were written beside it: outcomes and a trace of the devices.
type Run struct {
	Name     string
	Report   *formats.Report
	Outcomes []outcomes.Outcome // none if they were not written
	Timeline *Timeline          // nil if there is no trace
}

// bars returns a panel with a bar for each value: a row for each name, from the top, with a bar for each series in it.
func bars(rows, series []string, value func(row, series int) (float64, bool)) picture.Panel {
	panel := picture.Panel{Rows: slices.Clone(rows)}
	slices.Reverse(panel.Rows)
	height := .7 / float64(max(len(series), 1)) // of a bar, where a row has 1
	for k, name := range series {
		for i := range rows {
			if v, ok := value(i, k); ok {
				y := float64(len(rows)-1-i) + .35 - height*(float64(k)+.5)
				panel.Lines = append(panel.Lines, picture.Line{Name: name, Width: max(12*height, 1.5), Points: plotter.XYs{{X: 0, Y: y}, {X: v, Y: y}}})
			}
		}
	}
	return panel
}

// percentileTicks are the percentiles that a picture of latencies names, each at its number of nines.
var percentileTicks = func() (out []plot.Tick) {
	for _, p := range []float64{.5, .9, .99, .999, .9999} {
		out = append(out, picture.Tick(nines(p), fmt.Sprintf("%g %%", 100*p)))
	}
	return out
}()

// nines returns how many nines a share has: 1 for 90 %, 2 for 99 %. Latencies at the tail are as wide as the others on this scale.
func nines(share float64) float64 { return -math.Log10(1 - share) }

// latencies returns the latency in milliseconds by the nines of the share of answers that is as fast: of all answers if
// their outcomes are known, else at the percentiles of the report.
func (r *Run) latencies(key formats.ModelClass) plotter.XYs {
	var sorted []float64
	for _, o := range r.Outcomes {
		if o.Reason == "" && (o.ModelClass == key || key == formats.ModelClass{}) {
			sorted = append(sorted, o.Latency.Seconds()*1e3)
		}
	}
	if len(sorted) > 0 {
		slices.Sort(sorted)
		var out plotter.XYs
		for x := 0.; x <= min(nines(1-1/float64(len(sorted)+1)), 4); x += .05 {
			out = append(out, plotter.XY{X: x, Y: sorted[report.Rank(len(sorted), 1-math.Pow(10, -x))-1]})
		}
		return out
	}
	for _, row := range Rows(r.Name, r.Report) {
		if row.ModelClass == key && row.Completed > 0 {
			l := &row.Latency
			return plotter.XYs{{X: nines(.5), Y: millis(l.P50US)}, {X: nines(.9), Y: millis(l.P90US)}, {X: nines(.95), Y: millis(l.P95US)}, {X: nines(.99), Y: millis(l.P99US)}}
		}
	}
	return nil
}

// windows returns a value of the windows of time of all models together, by seconds. value gets the length of a window
// in seconds: until the next one begins, or the run ends. A window without a length is left out.
func (r *Run) windows(value func(w *formats.WindowReport, seconds float64) float64) plotter.XYs {
	var list []*formats.WindowReport
	for i := range r.Report.Windows {
		if w := &r.Report.Windows[i]; w.Model == "" {
			list = append(list, w)
		}
	}
	var out plotter.XYs
	var width document.Micros // of the window before
	for i, w := range list {
		length := r.Report.DurationUS - w.StartUS
		if i+1 < len(list) {
			length = list[i+1].StartUS - w.StartUS
		} else if width > 0 && (length <= 0 || length > width) { // a run that was interrupted does not say its end
			length = width
		}
		if width = length; length > 0 {
			out = append(out, plotter.XY{X: w.StartUS.D().Seconds(), Y: value(w, length.D().Seconds())})
		}
	}
	return out
}
