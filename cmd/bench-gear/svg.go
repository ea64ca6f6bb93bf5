package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"inferplan/planner/gear/baseline"
	"inferplan/planner/gear/published"
)

// Sizes of a picture, and colours of its lines that differ without colour
// vision (Okabe and Ito).
const (
	picWidth, panelHeight, panelGap = 860, 150, 34
	picLeft, picRight, picTop       = 64, 190, 26
)

var colours = []string{"#0072B2", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#000000"}

// drawTimeline draws rate, accuracy and p95 over time, with the SLO as a line.
func drawTimeline(w io.Writer, f *published.Family, s scene, lines []line) error {
	var text strings.Builder
	height := picTop + 3*(panelHeight+panelGap)
	fmt.Fprintf(&text, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", picWidth, height, picWidth, height)
	fmt.Fprintf(&text, `<rect width="%d" height="%d" fill="white"/>`+"\n", picWidth, height)
	end := f.Rates.Duration()
	p := panel{w: &text, end: end, low: 0, high: f.Rates.Peak()}
	p.frame(picTop, fmt.Sprintf("%s: requests/s", f.Name), "%.0f")
	p.line(colours[6], lines[0].run.Windows, func(w *baseline.Window) float64 { return float64(w.Requests) / s.windows.Width.Seconds() }, s.windows.Width)
	low, high := 1.0, 0.0
	slowest := ms(f.SLO)
	for _, l := range lines {
		for i := range l.run.Windows {
			low, high = min(low, l.run.Windows[i].Expected), max(high, l.run.Windows[i].Expected)
			slowest = max(slowest, ms(l.run.Windows[i].P95))
		}
	}
	p = panel{w: &text, end: end, low: math.Floor(low*100) / 100, high: math.Ceil(high*100) / 100}
	p.frame(picTop+panelHeight+panelGap, fmt.Sprintf("accuracy of the gears in force, windows of %v", s.windows.Width), "%.3f")
	if s.accuracySLO > 0 {
		p.rule(s.accuracySLO)
	}
	for k, l := range lines {
		p.line(colours[k%len(colours)], l.run.Windows, func(w *baseline.Window) float64 { return w.Expected }, s.windows.Width)
	}
	p = panel{w: &text, end: end, low: math.Log10(1), high: math.Log10(slowest), log: true}
	p.frame(picTop+2*(panelHeight+panelGap), "p95 ms (logarithmic)", "%.0f")
	p.rule(ms(f.SLO))
	for k, l := range lines {
		p.line(colours[k%len(colours)], l.run.Windows, func(w *baseline.Window) float64 { return max(1, ms(w.P95)) }, s.windows.Width)
		y := picTop + panelHeight + panelGap + 12 + 16*k
		fmt.Fprintf(&text, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s, %s devices</text>`+"\n",
			picWidth-picRight+10, y-4, picWidth-picRight+28, y-4, colours[k%len(colours)], picWidth-picRight+33, y, l.name, l.devices)
	}
	text.WriteString("</svg>\n")
	_, err := io.WriteString(w, text.String())
	return err
}

// panel is one of the pictures above each other.
type panel struct {
	w         io.Writer
	end       time.Duration
	low, high float64
	log       bool
	top       int
}

func (p *panel) x(at time.Duration) float64 {
	return picLeft + float64(at)/float64(p.end)*(picWidth-picLeft-picRight)
}

func (p *panel) y(v float64) float64 {
	if p.log {
		v = math.Log10(v)
	}
	return float64(p.top) + panelHeight*(1-(v-p.low)/max(p.high-p.low, 1e-9))
}

func (p *panel) frame(top int, title, format string) {
	p.top = top
	fmt.Fprintf(p.w, `<text x="%d" y="%d" font-weight="bold">%s</text><rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/>`+"\n",
		picLeft, top-6, title, picLeft, top, picWidth-picLeft-picRight, panelHeight)
	for k := range 4 {
		v := p.low + (p.high-p.low)*float64(k)/3
		shown := v
		if p.log {
			shown = math.Pow(10, v)
		}
		fmt.Fprintf(p.w, `<text x="%d" y="%.0f" text-anchor="end">`+format+`</text>`+"\n", picLeft-5, p.y(shown)+4, shown)
	}
	for k := range 5 {
		at := p.end * time.Duration(k) / 4
		fmt.Fprintf(p.w, `<text x="%.0f" y="%d" text-anchor="middle">%.0f s</text>`+"\n", p.x(at), top+panelHeight+13, at.Seconds())
	}
}

func (p *panel) rule(v float64) {
	fmt.Fprintf(p.w, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#444" stroke-dasharray="5 4"/><text x="%d" y="%.1f">SLO</text>`+"\n",
		picLeft, p.y(v), picWidth-picRight, p.y(v), picWidth-picRight+10, p.y(v)+4)
}

// line joins windows at their middles.
func (p *panel) line(colour string, windows []baseline.Window, value func(*baseline.Window) float64, width time.Duration) {
	fmt.Fprintf(p.w, `<polyline fill="none" stroke="%s" stroke-width="1.3" points="`, colour)
	for i := range windows {
		fmt.Fprintf(p.w, "%.1f,%.1f ", p.x(windows[i].From+width/2), p.y(value(&windows[i])))
	}
	fmt.Fprintln(p.w, `"/>`)
}
