package picture

import (
	"fmt"
	"html"
	"strings"
)

// Colours of lines that differ without colour vision, too (Okabe and Ito).
var Colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"}

// Picture is a picture in the making; String ends it.
type Picture struct{ text strings.Builder }

// New begins a white picture whose text has a size of so many pixels.
func New(width, height, font int) *Picture {
	p := &Picture{}
	p.Addf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`, width, height, width, height, font)
	p.Addf(`<rect width="%d" height="%d" fill="white"/>`, width, height)
	return p
}

// Addf adds an element.
func (p *Picture) Addf(format string, args ...any) {
	fmt.Fprintf(&p.text, format, args...)
	p.text.WriteByte('\n')
}

// Text adds text with further attributes, where there are any.
func (p *Picture) Text(x, y float64, attributes, text string) {
	if attributes != "" {
		attributes = " " + attributes
	}
	p.Addf(`<text x="%.1f" y="%.1f"%s>%s</text>`, x, y, attributes, html.EscapeString(text))
}

// Curve joins points.
func (p *Picture) Curve(colour string, width float64, points [][2]float64) {
	at := make([]string, len(points))
	for i, q := range points {
		at[i] = fmt.Sprintf("%.1f,%.1f", q[0], q[1])
	}
	p.Addf(`<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"/>`, strings.Join(at, " "), colour, width)
}

func (p *Picture) String() string { return p.text.String() + "</svg>\n" }
