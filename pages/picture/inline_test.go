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

// Ranges that are as narrow as numbers can be are drawn, too.
func TestNarrowRangesAreDrawn(t *testing.T) {
	for _, points := range []plotter.XYs{{{X: 1e16, Y: 1}, {X: 1e16 + 2, Y: 1e16}}, {{X: 0, Y: 0}, {X: 1e-310, Y: 1e-310}}, {{X: 1e16, Y: 1e16}}} {
		f := picture.Figure{Panels: []picture.Panel{{Lines: []picture.Line{{Points: points}}}}}
		if _, err := f.Inline(); err != nil {
			t.Errorf("%v: %v", points, err)
		}
	}
}
