package diff

import (
	"fmt"
	"strings"

	"inferplan/formats"
)

// Gears compares the answers of two gear plans. Ranges are matched by their upper ends; ranges of only one plan
// are added or removed. A plan of another kind has none.
func Gears(before, after *formats.Plan, r *Recorder) {
	a, b := orZero(formats.GearOf(before)), orZero(formats.GearOf(after))
	r.section = "gears"
	r.span("slo", a.SLOUS, b.SLOUS, neutral)
	r.text("percentile", a.Percentile, b.Percentile)
	r.figure("max", a.MaxQPS, b.MaxQPS, "rps", neutral)
	r.text("weights", a.Weights, b.Weights)
	r.count("samples", a.Samples, b.Samples, neutral)
	r.count("held out", a.HeldOut, b.HeldOut, neutral)
	for n, p := range shared(a.Models, b.Models, func(m *formats.GearModel) string { return m.Model }) {
		if p.a.Levels != p.b.Levels || p.a.Correct != p.b.Correct {
			r.text(n+" records", "as planned", "others")
		}
		r.count(n+" thresholds", len(p.a.Thresholds), len(p.b.Thresholds), neutral)
	}
	matched(r, "gears", a.Gears, b.Gears, edge, "", cascade, func(e string, x, y *formats.Gear) { r.gear(e+" ", x, y) })
}

func edge(g *formats.Gear) string { return fmt.Sprintf("up to %.6g rps", g.ToQPS) }

func (r *Recorder) gear(at string, a, b *formats.Gear) {
	r.text(at+"cascade", cascade(a), cascade(b))
	r.figure(at+"accuracy", a.Accuracy, b.Accuracy, "", moreIsBetter)
	r.optional(at+"accuracy held out", a.AccuracyHeldOut, b.AccuracyHeldOut, "", moreIsBetter)
	r.figure(at+"bound", a.Bound, b.Bound, "", neutral)
	r.span(at+"latency", a.LatencyUS, b.LatencyUS, lessIsBetter)
	if a.LatencyHeldOutUS > 0 && b.LatencyHeldOutUS > 0 { // earlier versions did not simulate it
		r.span(at+"latency held out", a.LatencyHeldOutUS, b.LatencyHeldOutUS, lessIsBetter)
	}
	r.figure(at+"utilisation", a.Utilisation, b.Utilisation, "", neutral)
	r.figure(at+"weight", a.Weight, b.Weight, "", neutral)
	if cascade(a) != cascade(b) {
		return
	}
	for k := range a.Stages {
		if x, y := fmt.Sprintf("%.3g", a.Stages[k].Split), fmt.Sprintf("%.3g", b.Stages[k].Split); x != y {
			r.text(at+a.Stages[k].Model+" split", x, y)
		}
	}
}

// cascade writes a gear's models with their thresholds, and the smallest queue if that is not 1.
func cascade(g *formats.Gear) string {
	var parts []string
	for k := range g.Stages {
		s := &g.Stages[k]
		text := s.Model
		if s.Level > 0 {
			text += fmt.Sprintf("(%.3g)", s.Threshold)
		}
		if s.MinQueue > 1 {
			text += fmt.Sprintf(" from %d queued", s.MinQueue)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " > ")
}
