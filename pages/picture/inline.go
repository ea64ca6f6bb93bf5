package picture

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of inline pictures, in points: small enough that their text can be read where a page is 400 pixels wide.
const (
	inlineWidth, inlineHeight = 340, 150
	rowHeight, rowsMargin     = 14, 52
)

// Inline returns the figure as an SVG element for a page of HTML: without a background and a legend, as wide as its place, and
// with the colours of the page. Line i of Names has the colour of the CSS variable --line-i, in turns of Colours; text and axes
// have the colour of the page's text.
func (f *Figure) Inline() ([]byte, error) {
	plots, err := f.plots(inlineHeight)
	if err != nil {
		return nil, err
	}
	height := vg.Length(0)
	for i, p := range plots {
		p.BackgroundColor = nil
		p.Title.TextStyle.Font.Size, p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(10), vg.Points(10), vg.Points(10)
		height += max(inlineHeight, vg.Length(rowHeight*len(f.Panels[i].Rows)+rowsMargin))
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(inlineWidth, height))
	drawPlots(plots, draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("writing a picture: %w", err)
	}
	return inline(out.Bytes()), nil
}

// Colours returns the colours of lines on a bright page, in their order.
func Colours() []string { return colours }

// Tick returns a tick with a label for the horizontal axis of a figure.
func Tick(value float64, label string) plot.Tick { return plot.Tick{Value: value, Label: label} }

// prelude matches the beginning of an SVG document of gonum.org/v1/plot until its content, with the size of the view box.
var prelude = regexp.MustCompile(`(?s)^.*?<svg [^>]*?viewBox="([^"]*)"[^>]*>`)

// inline turns an SVG document into an element of HTML with the colours of the page.
func inline(svg []byte) []byte {
	themed := []string{"font-family:Liberation Sans;", "", "#000000", "currentColor", "#444444", "currentColor"}
	for i, c := range colours {
		themed = append(themed, c, fmt.Sprintf("var(--line-%d)", i))
	}
	size := prelude.FindSubmatch(svg)
	body := prelude.ReplaceAll(svg, nil)
	return []byte(fmt.Sprintf(`<svg viewBox="%s" role="img">`, size[1]) + strings.NewReplacer(themed...).Replace(string(body)))
}
