package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// line is a curve of a plot.
type line struct {
	name   string
	points [][2]float64
}

var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7"}

// plot writes lines as an SVG file, where plots are asked for. The vertical
// axis starts at 0.
func (b *bench) plot(name, title, x, y string, lines []line) error {
	if b.plots == "" {
		return nil
	}
	if err := os.MkdirAll(b.plots, 0o755); err != nil {
		return fmt.Errorf("making the folder of plots: %w", err)
	}
	path := filepath.Join(b.plots, name+".svg")
	if err := os.WriteFile(path, []byte(svg(title, x, y, lines)), 0o644); err != nil {
		return fmt.Errorf("writing a plot: %w", err)
	}
	fmt.Fprintf(b.notes, "plot: %s\n", path)
	return nil
}

func svg(title, x, y string, lines []line) string {
	const width, height, left, right, top, bottom = 640.0, 400.0, 60.0, 20.0, 40.0, 50.0
	low, high, most := math.Inf(1), math.Inf(-1), 0.0
	for _, l := range lines {
		for _, p := range l.points {
			low, high, most = min(low, p[0]), max(high, p[0]), max(most, p[1])
		}
	}
	if !(high > low) {
		low, high = low-1, low+1
	}
	most = max(most, 1e-9)
	at := func(p [2]float64) (float64, float64) {
		return left + (p[0]-low)/(high-low)*(width-left-right), height - bottom - p[1]/most*(height-top-bottom)
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="white"/><text x="%g" y="20" font-size="14">%s</text>`+"\n", left, html.EscapeString(title))
	for i := range 6 {
		v := most * float64(i) / 5
		_, py := at([2]float64{low, v})
		fmt.Fprintf(&s, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%.2g</text>`+"\n", left, py, width-right, py, left-6, py+4, v)
		u := low + (high-low)*float64(i)/5
		px, _ := at([2]float64{u, 0})
		fmt.Fprintf(&s, `<text x="%.1f" y="%g" text-anchor="middle">%.3g</text>`+"\n", px, height-bottom+18, u)
	}
	fmt.Fprintf(&s, `<text x="%g" y="%g" text-anchor="middle">%s</text><text transform="translate(16 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		(left+width-right)/2, height-10, html.EscapeString(x), (top+height-bottom)/2, html.EscapeString(y))
	for i, l := range lines {
		colour := colours[i%len(colours)]
		var points []string
		for _, p := range l.points {
			px, py := at(p)
			points = append(points, fmt.Sprintf("%.1f,%.1f", px, py))
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, px, py, colour)
		}
		fmt.Fprintf(&s, "\n"+`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%g" y="%g" fill="%s">%s</text>`+"\n",
			strings.Join(points, " "), colour, left+10+120*float64(i), top-6, colour, html.EscapeString(l.name))
	}
	s.WriteString("</svg>\n")
	return s.String()
}
