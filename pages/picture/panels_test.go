package picture_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"inferplan/pages/picture"
)

// Panels stand in one whole document, with one legend for all; the same panels give the same bytes.
func TestPanels(t *testing.T) {
	panels := []picture.Panel{
		{Title: "rate < peak", FromZero: true, Lines: []picture.Line{{Points: plotter.XYs{{X: 0, Y: 5}, {X: 10, Y: 7}}}}},
		{Title: "p95", Vertical: "ms", Logarithmic: true, Limit: 400, Lines: []picture.Line{
			{Name: "planner", Points: plotter.XYs{{X: 0, Y: 30}, {X: 10, Y: 90}}, Marks: true},
			{Name: "MS+", Points: plotter.XYs{{X: 0, Y: 40}, {X: 10, Y: 9000}}},
		}},
	}
	got, err := picture.Panels("s", panels)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rate &lt; peak", ">planner<", ">MS+<", ">10000<", "stroke-dasharray", "#0072B2", "#D55E00"} {
		if n := strings.Count(string(got), want); n == 0 || want == ">planner<" && n > 1 {
			t.Errorf("%s comes %d times in\n%s", want, n, got)
		}
	}
	for d := xml.NewDecoder(bytes.NewReader(got)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if again, err := picture.Panels("s", panels); err != nil || !bytes.Equal(again, got) {
		t.Errorf("drawn again: other bytes, %v", err)
	}
}

// What cannot be drawn is an error, not a panic.
func TestPanelsThatCannotBeDrawn(t *testing.T) {
	for want, panel := range map[string]picture.Panel{
		"no panel has a point": {Title: "empty"},
		"needs positive ones":  {Logarithmic: true, Lines: []picture.Line{{Points: plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}}}}},
		"NaN":                  {Lines: []picture.Line{{Name: "broken", Points: plotter.XYs{{X: 0, Y: math.NaN()}}}}},
	} {
		if _, err := picture.Panels("s", []picture.Panel{panel}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, expected %q", err, want)
		}
	}
}
