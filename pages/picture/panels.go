package picture

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Line is a curve of a panel. Lines of one name have one colour in all panels and one entry in the legend; lines without
// a name are black and have none.
type Line struct {
	Name   string
	Points plotter.XYs
	Marks  bool    // a dot at every point, too
	Width  float64 // in points; 0 is that of a curve
}

// Panel is one of the plots that stand above each other.
type Panel struct {
	Title, Vertical string   // Vertical is the label of the axis; empty if it has none
	FromZero        bool     // the vertical axis begins at 0
	Logarithmic     bool     // the vertical axis is logarithmic: values have to be positive
	Limit           float64  // a dashed rule across the panel, as of an SLO; 0 if there is none
	LimitX          float64  // the same across the horizontal axis
	Rows            []string // names of the whole numbers of the vertical axis from 0, upwards; the panel is as high as they need
	Lines           []Line
}

// Figure is panels above each other with one horizontal axis.
type Figure struct {
	Legend     []string    // names that come first in the legend, so that they have the same colours in several figures
	Horizontal string      // the label of the axis
	Ticks      []plot.Tick // of the horizontal axis; nil lets the plot choose
	Panels     []Panel
}

// colours are those of lines; they differ without colour vision, too (Okabe and Ito).
var colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"}

// Sizes of pictures, in points: the width of all plots, the height of one, and the room before and behind the legend.
const (
	plotWidth, plotHeight = 560, 150
	legendMargin          = 8
)

// Panels returns an SVG picture of plots above each other, with one horizontal axis for all of them and a legend at the right.
func Panels(horizontal string, panels []Panel) ([]byte, error) {
	figure := Figure{Horizontal: horizontal, Panels: panels}
	plots, err := figure.plots(plotHeight)
	if err != nil {
		return nil, err
	}
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
	legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(10)
	width := vg.Length(plotWidth)
	for i, name := range figure.Names() {
		legend.Add(name, &plotter.Line{LineStyle: draw.LineStyle{Color: colourOf(i), Width: vg.Points(2)}})
		width = max(width, plotWidth+2*legendMargin+legend.ThumbnailWidth+legend.TextStyle.Width(" "+name))
	}
	svg := vgsvg.NewWith(vgsvg.UseWH(width, vg.Length(plotHeight*len(panels))))
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	drawPlots(plots, draw.Crop(all, 0, plotWidth-width, 0, 0))
	legend.Draw(draw.Crop(all, plotWidth+legendMargin, 0, 0, -vg.Points(24)))
	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("writing a picture: %w", err)
	}
	// Readers without the font that the text was laid out with take one as wide.
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,sans-serif;")), nil
}

// Names returns the names of lines that the figure's legend has, each once, in the order of their colours.
func (f *Figure) Names() []string {
	names := slices.Clone(f.Legend)
	for _, panel := range f.Panels {
		for _, line := range panel.Lines {
			if line.Name != "" && !slices.Contains(names, line.Name) {
				names = append(names, line.Name)
			}
		}
	}
	return names
}

// plots returns the panels as plots with the same range of the horizontal axis. height is that of a panel without rows, in points.
func (f *Figure) plots(height float64) ([]*plot.Plot, error) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, panel := range f.Panels {
		for _, line := range panel.Lines {
			for _, point := range line.Points {
				low, high = min(low, point.X), max(high, point.X)
			}
		}
		if panel.LimitX != 0 {
			low, high = min(low, panel.LimitX), max(high, panel.LimitX)
		}
	}
	if low > high {
		return nil, errors.New("drawing a picture: no panel has a point")
	}
	plots := make([]*plot.Plot, len(f.Panels))
	for i := range f.Panels {
		p := plot.New()
		p.X.Min, p.X.Max = low, high
		if i == len(f.Panels)-1 {
			p.X.Label.Text = f.Horizontal
		}
		if f.Ticks != nil {
			p.X.Tick.Marker = plot.ConstantTicks(f.Ticks)
		}
		if err := f.Panels[i].fill(p, f.Names()); err != nil {
			return nil, fmt.Errorf("drawing %q: %w", f.Panels[i].Title, err)
		}
		widen(&p.X)
		widen(&p.Y)
		plots[i] = p
	}
	return plots, nil
}

// widen widens the range of an axis that is narrower than a millionth of its values, or than 1e-9: a plot panics there. A range of one value gets 1 on both sides, as a plot does it.
func widen(axis *plot.Axis) {
	least := max(1e-9, 1e-6*max(math.Abs(axis.Min), math.Abs(axis.Max)))
	switch {
	case axis.Min == axis.Max:
		axis.Min, axis.Max = axis.Min-max(1, least), axis.Max+max(1, least)
	case axis.Max-axis.Min < least:
		axis.Max = axis.Min + least
	}
}

// drawPlots draws plots below each other, with their axes aligned.
func drawPlots(plots []*plot.Plot, canvas draw.Canvas) {
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	canvases := plot.Align(rows, draw.Tiles{Rows: len(plots), Cols: 1, PadY: vg.Points(8), PadTop: vg.Points(4), PadLeft: vg.Points(6)}, canvas)
	for i, p := range plots {
		p.Draw(canvases[i][0])
	}
}

// fill puts the panel's lines and axes into a plot. names are those of the legend, in the order of their colours.
func (panel *Panel) fill(p *plot.Plot, names []string) error {
	p.Title.Text, p.Y.Label.Text = panel.Title, panel.Vertical
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font.Variant = "Sans"
	}
	if panel.Logarithmic {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)
	for _, line := range panel.Lines {
		curve, dots, err := plotter.NewLinePoints(line.Points)
		if err != nil {
			return fmt.Errorf("line %q: %w", line.Name, err)
		}
		curve.Width, curve.Color = vg.Points(cmp.Or(line.Width, 1.3)), colourOf(slices.Index(names, line.Name))
		p.Add(curve)
		if line.Marks {
			dots.Shape, dots.Color = draw.CircleGlyph{}, curve.Color
			p.Add(dots)
		}
	}
	for _, limit := range []struct {
		isSet    bool
		from, to plotter.XY
	}{
		{panel.Limit != 0, plotter.XY{X: p.X.Min, Y: panel.Limit}, plotter.XY{X: p.X.Max, Y: panel.Limit}},
		{panel.LimitX != 0, plotter.XY{X: panel.LimitX, Y: p.Y.Min}, plotter.XY{X: panel.LimitX, Y: p.Y.Max}},
	} {
		if !limit.isSet {
			continue
		}
		rule, err := plotter.NewLine(plotter.XYs{limit.from, limit.to})
		if err != nil {
			return err
		}
		rule.Color, rule.Dashes = color.Gray{0x44}, []vg.Length{vg.Points(5), vg.Points(4)}
		p.Add(rule)
	}
	if len(panel.Rows) > 0 {
		p.NominalY(panel.Rows...)
		p.Y.Min, p.Y.Max = -.5, float64(len(panel.Rows))-.5
	}
	switch {
	case panel.FromZero:
		p.Y.Min, p.Y.Max = 0, max(p.Y.Max, 1e-9)
	case panel.Logarithmic && p.Y.Min <= 0:
		return fmt.Errorf("the least value is %g, a logarithmic axis needs positive ones", p.Y.Min)
	case panel.Logarithmic: // to the next powers of ten
		p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	}
	return nil
}

// colourOf returns one of the colours, in turns; for -1 it returns black.
func colourOf(i int) color.Color {
	var c color.NRGBA
	c.A = 0xff
	if i >= 0 {
		// They are written as #rrggbb, of which Sscanf reads all.
		_, _ = fmt.Sscanf(colours[i%len(colours)], "#%02x%02x%02x", &c.R, &c.G, &c.B)
	}
	return c
}
