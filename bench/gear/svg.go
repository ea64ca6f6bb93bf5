package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/picture"
)

// Sizes of a picture.
const (
	picWidth, panelHeight, panelGap = 860, 150, 34
	picLeft, picRight, picTop       = 64, 190, 26
)

// drawTimeline draws rate, accuracy and p95 over time, with the SLOs as lines.
func drawTimeline(w io.Writer, f *published.Family, s scene, lines []line) error {
	text := picture.New(picWidth, picTop+3*(panelHeight+panelGap), 11)
	low, high := 1.0, 0.0
	fastest, slowest := ms(f.SLO), ms(f.SLO)
	for _, l := range lines {
		for i := range l.run.Windows {
			w := &l.run.Windows[i]
			low, high = min(low, w.Expected), max(high, w.Expected)
			fastest, slowest = min(fastest, ms(w.P95)), max(slowest, ms(w.P95))
		}
	}
	panels := []panel{
		{title: f.Name + ": requests/s", high: f.Rates.Peak()},
		{title: fmt.Sprintf("accuracy of the gears in force, windows of %v", s.windows.Width), low: low, high: high},
		{title: "p95 ms (logarithmic)", low: math.Floor(math.Log10(fastest)), high: math.Ceil(math.Log10(slowest)), log: true},
	}
	for k := range panels {
		p := &panels[k]
		p.to, p.end, p.width, p.top = text, f.Rates.Duration(), s.windows.Width, picTop+k*(panelHeight+panelGap)
		p.frame()
	}
	if s.accuracySLO > 0 {
		panels[1].rule(s.accuracySLO)
	}
	panels[2].rule(ms(f.SLO))
	panels[0].line("#000000", lines[0].run.Windows, func(w *baseline.Window) float64 { return float64(w.Requests) / s.windows.Width.Seconds() })
	for k, l := range lines {
		colour := picture.Colours[k%len(picture.Colours)]
		panels[1].line(colour, l.run.Windows, func(w *baseline.Window) float64 { return w.Expected })
		panels[2].line(colour, l.run.Windows, func(w *baseline.Window) float64 { return ms(w.P95) })
		x, y := picWidth-picRight+10, panels[1].top+28+16*k
		devices := l.devices + " devices"
		if l.devices == "1" {
			devices = "1 device"
		}
		text.Curve(colour, 3, [][2]float64{{float64(x), float64(y - 4)}, {float64(x + 18), float64(y - 4)}})
		text.Text(float64(x+23), float64(y), "", l.name+", "+devices)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// panel is one of the pictures above each other. With log its bounds are powers
// of ten.
type panel struct {
	title     string
	low, high float64
	log       bool

	to         *picture.Picture
	end, width time.Duration // of the run, of a window
	top        int
}

func (p *panel) x(at time.Duration) float64 {
	return picLeft + float64(at)/float64(p.end)*(picWidth-picLeft-picRight)
}

func (p *panel) y(v float64) float64 {
	if p.log {
		v = math.Log10(v)
	}
	return float64(p.top) + panelHeight*(1-(v-p.low)/(p.high-p.low))
}

// frame draws the box with its marks, after it has moved the bounds to round
// numbers.
func (p *panel) frame() {
	step := 1.0
	if !p.log {
		step = round(max(p.high-p.low, 1e-3) / 4)
		p.low, p.high = step*math.Floor(p.low/step+1e-9), step*math.Ceil(p.high/step-1e-9)
	}
	p.to.Text(picLeft, float64(p.top-6), `font-weight="bold"`, p.title)
	p.to.Addf(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/>`, picLeft, p.top, picWidth-picLeft-picRight, panelHeight)
	for v := p.low; v <= p.high+step/2; v += step {
		shown := math.Round(v*1e6) / 1e6
		if p.log {
			shown = math.Pow(10, v)
		}
		p.to.Text(picLeft-5, p.y(shown)+4, `text-anchor="end"`, fmt.Sprintf("%g", shown))
	}
	for k := range 5 {
		at := p.end * time.Duration(k) / 4
		p.to.Text(p.x(at), float64(p.top+panelHeight+13), `text-anchor="middle"`, fmt.Sprintf("%.0f s", at.Seconds()))
	}
}

// round is the next 1, 2 or 5 times a power of ten.
func round(step float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(step)))
	for _, k := range []float64{1, 2, 5} {
		if k*ten >= step*(1-1e-9) {
			return k * ten
		}
	}
	return 10 * ten
}

func (p *panel) rule(v float64) {
	p.to.Addf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#444" stroke-dasharray="5 4"/>`, picLeft, p.y(v), picWidth-picRight, p.y(v))
	p.to.Text(picWidth-picRight+10, p.y(v)+4, "", "SLO")
}

// line joins windows at their middles.
func (p *panel) line(colour string, windows []baseline.Window, value func(*baseline.Window) float64) {
	points := make([][2]float64, len(windows))
	for i := range windows {
		points[i] = [2]float64{p.x(windows[i].From + p.width/2), p.y(value(&windows[i]))}
	}
	p.to.Curve(colour, 1.3, points)
}
