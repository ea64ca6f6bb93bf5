package diff

import (
	"fmt"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Gears records what changed between the gears of two plans (cascades for ranges of request rates). Ranges are
// matched by their upper ends; ranges of only one plan are added or removed. A plan of another kind has none.
func Gears(oldPlan, newPlan *formats.Plan, r *Recorder) {
	a, b := orZero(formats.GearOf(oldPlan)), orZero(formats.GearOf(newPlan))
	r.section = "gears"
	r.addTime("slo", a.SLOUS, b.SLOUS, neutral)
	r.addText("percentile", a.Percentile, b.Percentile)
	r.addFigure("max", a.MaxQPS, b.MaxQPS, "rps", neutral)
	r.addText("weights", a.Weights, b.Weights)
	r.addCount("samples", a.Samples, b.Samples, neutral)
	r.addCount("held out", a.HeldOut, b.HeldOut, neutral)
	for n, p := range commonNames(a.Models, b.Models, func(m *formats.GearModel) string { return m.Model }) {
		if p.a.Levels != p.b.Levels || p.a.Correct != p.b.Correct {
			r.addText(n+" records", "as planned", "others")
		}
		r.addCount(n+" thresholds", len(p.a.Thresholds), len(p.b.Thresholds), neutral)
	}
	eachPair(r, "gears", a.Gears, b.Gears, formatRate, "", cascade, func(e string, x, y *formats.Gear) { r.addGear(e+" ", x, y) })
}

func formatRate(g *formats.Gear) string { return fmt.Sprintf("up to %.6g rps", g.ToQPS) }

// addGear records what changed from gear a to gear b: the cascade of models for a range of request rates, with its
// accuracy and latency. The splits among replicas are compared only if the cascades are the same.
func (r *Recorder) addGear(path string, a, b *formats.Gear) {
	r.addText(path+"cascade", cascade(a), cascade(b))
	r.addFigure(path+"accuracy", a.Accuracy, b.Accuracy, "", moreIsBetter)
	r.addOptional(path+"accuracy held out", a.AccuracyHeldOut, b.AccuracyHeldOut, "", moreIsBetter)
	r.addFigure(path+"bound", a.Bound, b.Bound, "", neutral)
	r.addTime(path+"latency", a.LatencyUS, b.LatencyUS, lessIsBetter)
	if a.LatencyHeldOutUS > 0 && b.LatencyHeldOutUS > 0 { // earlier versions did not simulate it
		r.addTime(path+"latency held out", a.LatencyHeldOutUS, b.LatencyHeldOutUS, lessIsBetter)
	}
	r.addFigure(path+"utilisation", a.Utilisation, b.Utilisation, "", neutral)
	r.addFigure(path+"weight", a.Weight, b.Weight, "", neutral)
	if cascade(a) != cascade(b) {
		return
	}
	for k := range a.Stages {
		if x, y := fmt.Sprintf("%.3g", a.Stages[k].Split), fmt.Sprintf("%.3g", b.Stages[k].Split); x != y {
			r.addText(path+a.Stages[k].Model+" split", x, y)
		}
	}
}

// cascade returns a gear's models as text, in the order in which they are asked, with the threshold below which each
// forwards, and the smallest queue if that is not 1. Level 0 is the last model, which forwards nothing.
func cascade(g *formats.Gear) string {
	parts := document.Map(g.Stages, func(s *formats.GearStage) string {
		text := s.Model
		if s.Level > 0 {
			text += fmt.Sprintf("(%.3g)", s.Threshold)
		}
		if s.MinQueue > 1 {
			text += fmt.Sprintf(" from %d queued", s.MinQueue)
		}
		return text
	})
	return strings.Join(parts, " > ")
}
