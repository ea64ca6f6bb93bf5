package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"inferplan/bench/picture"
)

// line is a curve of a plot.
type line struct {
	name   string
	points [][2]float64
}

// pictures are plots of tables.
type pictures struct {
	plots string // folder; if empty, none are asked for
	notes io.Writer
}

// plot writes lines as an SVG file, where plots are asked for. The vertical
// axis starts at 0.
func (p *pictures) plot(name, title, x, y string, lines []line) error {
	if p.plots == "" {
		return nil
	}
	if err := os.MkdirAll(p.plots, 0o755); err != nil {
		return fmt.Errorf("making the folder of plots: %w", err)
	}
	path := filepath.Join(p.plots, name+".svg")
	if err := os.WriteFile(path, []byte(svg(title, x, y, lines)), 0o644); err != nil {
		return fmt.Errorf("writing a plot: %w", err)
	}
	fmt.Fprintf(p.notes, "plot: %s\n", path)
	return nil
}

func svg(title, x, y string, lines []line) string {
	const width, height, left, right, top, bottom = 640, 400, 60.0, 20.0, 40.0, 50.0
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
	s := picture.New(width, height, 12)
	s.Text(left, 20, `font-size="14"`, title)
	for i := range 6 {
		v := most * float64(i) / 5
		_, py := at([2]float64{low, v})
		s.Curve("#ddd", 1, [][2]float64{{left, py}, {width - right, py}})
		s.Text(left-6, py+4, `text-anchor="end"`, fmt.Sprintf("%.2g", v))
		u := low + (high-low)*float64(i)/5
		px, _ := at([2]float64{u, 0})
		s.Text(px, height-bottom+18, `text-anchor="middle"`, fmt.Sprintf("%.3g", u))
	}
	s.Text((left+width-right)/2, height-10, `text-anchor="middle"`, x)
	s.Text(0, 0, fmt.Sprintf(`transform="translate(16 %g) rotate(-90)" text-anchor="middle"`, (top+height-bottom)/2), y)
	for i, l := range lines {
		colour := picture.Colours[i%len(picture.Colours)]
		points := make([][2]float64, len(l.points))
		for k, p := range l.points {
			px, py := at(p)
			points[k] = [2]float64{px, py}
			s.Addf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, px, py, colour)
		}
		s.Curve(colour, 2, points)
		s.Text(left+10+120*float64(i), top-6, fmt.Sprintf(`fill="%s"`, colour), l.name)
	}
	return s.String()
}
