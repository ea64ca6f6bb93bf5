package pages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/plotter"

	"inferplan/formats"
	"inferplan/formats/document"
)

// The last window of a run is shorter than the others. A window without a length is left out.
func TestWindowsAreDividedByTheirLength(t *testing.T) {
	const second = document.Micros(1e9) // counts nanoseconds
	windows := func(starts ...document.Micros) (out []formats.WindowReport) {
		for _, s := range starts {
			out = append(out, formats.WindowReport{StartUS: s * second})
		}
		return out
	}
	for _, c := range []struct {
		end    document.Micros
		starts []document.Micros
		want   plotter.XYs // lengths by start
	}{
		{9, []document.Micros{1, 5}, plotter.XYs{{X: 1, Y: 4}, {X: 5, Y: 4}}},
		{6, []document.Micros{1, 5}, plotter.XYs{{X: 1, Y: 4}, {X: 5, Y: 1}}},
		{6, []document.Micros{1}, plotter.XYs{{X: 1, Y: 5}}},
		{0, []document.Micros{1, 5}, plotter.XYs{{X: 1, Y: 4}, {X: 5, Y: 4}}},
		{9, []document.Micros{1, 1, 5}, plotter.XYs{{X: 1, Y: 4}, {X: 5, Y: 4}}},
		{0, []document.Micros{0}, nil},
	} {
		r := Run{Report: &formats.Report{DurationUS: c.end * second, Windows: windows(c.starts...)}}
		if d := cmp.Diff(c.want, r.windows(func(_ *formats.WindowReport, seconds float64) float64 { return seconds })); d != "" {
			t.Errorf("end %d, windows at %v: %s", c.end, c.starts, d)
		}
	}
}
