package picture_test

import (
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"inferplan/pages/picture"
)

// An inline figure has the colours of its page, no size and no address.
func TestInlineFiguresTakeColoursOfThePage(t *testing.T) {
	f := picture.Figure{Horizontal: "ms", Panels: []picture.Panel{{Rows: []string{"a", "b"}, LimitX: 5, Lines: []picture.Line{
		{Name: "promised", Points: plotter.XYs{{X: 0, Y: 0}, {X: 3, Y: 0}}, Width: 6},
		{Name: "measured", Points: plotter.XYs{{X: 0, Y: 1}, {X: 9, Y: 1}}, Width: 6},
	}}}}
	svg, err := f.Inline()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg viewBox=", "var(--line-0)", "var(--line-1)", "currentColor", "stroke-dasharray", ">b<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("%s is missing in\n%s", want, svg)
		}
	}
	for _, refused := range []string{"http", "width=", "#0072B2", "#FFFFFF", "<?xml"} {
		if strings.Contains(string(svg), refused) {
			t.Errorf("%s is in\n%s", refused, svg)
		}
	}
}
