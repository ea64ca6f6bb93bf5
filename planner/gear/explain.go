package gear

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// explain returns lines of text on a plan for the user, as the Explain of Method: its accuracy and bounds, what trials
// have ruled out, which models run in stages and, for each range of rates, which models answer. If the plan is no
// cascade, it returns nil.
func explain(p *formats.Plan) []string {
	g := formats.GearOf(p)
	if g == nil {
		return nil
	}

	// The accuracy, unless the plan's objective is just that: the objective has a line of its own outside of these.
	var lines []string
	if p.Objective.Name != "accuracy" || g.AccuracyHeldOut != nil {
		lines = append(lines, accuracyLine(g))
	}
	if len(g.Models) > 0 {
		line := fmt.Sprintf("bounds: of plans over these thresholds, %d quantiles per model; finer ones may exceed them", len(g.Models[0].Thresholds)+1)
		// A range's bound is of mixtures of several cascades. If the plan's bound is noticeably below their mean, it is the sharper
		// one of plans with a single cascade per range, which exists only for an SLO of every range: say so.
		meanRangeBound := weightedMean(g, func(r *formats.Gear) float64 { return r.Bound })
		hasAccuracyBound := p.Objective.Bound != nil && p.Objective.Name == cascades.MostAccurate
		if hasAccuracyBound && g.SLOScope != formats.ScopeRequests && *p.Objective.Bound < meanRangeBound-trials.MinAccuracyGain {
			line += ". Those of ranges are of mixtures of cascades, too; that of the plan is of one cascade per range"
		}
		lines = append(lines, line)
	}
	// The bound by trials (simulated runs). It is of plans with one cascade per range and without stages, whose gears would have
	// to pass the same simulated streams with one of the splits of work that trials tried.
	if t := g.TriedBound; t > 0 {
		word := "below" // trials rule out smaller latencies, counts and prices, but higher accuracies
		if p.Objective.Name == cascades.MostAccurate {
			word = "above"
		}
		lines = append(lines, fmt.Sprintf("trials: no plan %s %s passes them, of one cascade per range on any placement of whole models, of the splits that were tried (least load, short batches, few devices) and by the streams of its trials", word, kind.FormatNumber(t)))
	}

	// Ranges that are not stable, and members in stages.
	if slices.ContainsFunc(g.Gears, func(r formats.Gear) bool { return r.Utilisation > 1 }) {
		lines = append(lines, "above 100 % busy: these ranges do not hold their upper edge for ever; streams of the measured rates have shown that all requests together keep the SLO")
	}
	for i := range p.Deployment {
		if line := stagesLine(&p.Deployment[i]); line != "" {
			lines = append(lines, line)
		}
	}

	lines = append(lines, lists.Map(len(g.Gears), func(i int) string { return gearLine(g, &g.Gears[i]) })...)
	return lines
}

// gearLine returns a line on the gear r of a range of rates: its cascade, with accuracy, latency (milliseconds) and the
// load of the busiest device. A model with a number in brackets forwards the samples that it answers with less
// certainty than that.
func gearLine(g *formats.GearPlan, r *formats.Gear) string {
	var stages []string
	for k := range r.Stages {
		s := &r.Stages[k]
		text := s.Model
		if s.Level > 0 {
			text += fmt.Sprintf("(%.3g)", s.Threshold)
		}
		stages = append(stages, text)
	}
	line := fmt.Sprintf("up to %s rps: %s: accuracy %.4f of at most %.4f, %s %s ms, busiest device %s", kind.FormatNumber(r.ToQPS), strings.Join(stages, " > "),
		r.Accuracy, r.Bound, g.Percentile, kind.FormatNumber(float64(r.LatencyUS.D())/1e6), kind.FormatPercent(r.Utilisation))
	if r.AccuracyHeldOut != nil && r.HeldOutInterval != nil {
		line += fmt.Sprintf("; held out %.4f (%.4f to %.4f)", *r.AccuracyHeldOut, r.HeldOutInterval[0], r.HeldOutInterval[1])
		if t := r.LatencyHeldOutUS; t > 0 {
			line += fmt.Sprintf(", %s ms", kind.FormatNumber(float64(t.D())/1e6))
		}
	}
	return line
}

// weightedMean returns the mean of a value of the gears, by their weights.
func weightedMean(g *formats.GearPlan, value func(r *formats.Gear) float64) float64 {
	return lists.Sum(len(g.Gears), func(i int) float64 { return g.Gears[i].Weight * value(&g.Gears[i]) })
}

// accuracyLine returns a line on the accuracy of the whole plan, the mean over the ranges of rates by weight: as
// planned, on held-out samples with its interval, and as requested (0 if no accuracy was).
func accuracyLine(g *formats.GearPlan) string {
	planned := weightedMean(g, func(r *formats.Gear) float64 { return r.Accuracy })
	line := fmt.Sprintf("accuracy: planned %.4f over the ranges by weight", planned)
	if h := g.HeldOutInterval; g.AccuracyHeldOut != nil && h != nil {
		line += fmt.Sprintf(", held out %.4f (%.4f to %.4f)", *g.AccuracyHeldOut, h[0], h[1])
	}
	if g.Accuracy > 0 {
		line += fmt.Sprintf(", %.4f asked for", g.Accuracy)
	}
	return line
}

// stagesLine returns a line on where a deployed model runs, if it is cut into stages: for each of its pipelines, which
// blocks run on how many devices. If the model runs whole everywhere, the line is empty.
func stagesLine(model *formats.Deployed) string {
	var pipelines []string
	inStages := false
	for i := range model.Pipelines {
		l := &model.Pipelines[i]
		inStages = inStages || len(l.Stages) > 1
		var parts []string
		for k := range l.Stages {
			s := &l.Stages[k]
			part := fmt.Sprintf("%d %s", s.Replicas, s.Device)
			if len(l.Stages) > 1 {
				part = fmt.Sprintf("blocks %d to %d on %s", s.Blocks[0], s.Blocks[1]-1, part)
			} else {
				part = "whole on " + part
			}
			parts = append(parts, part)
		}
		pipelines = append(pipelines, strings.Join(parts, " > "))
	}
	if !inStages {
		return ""
	}
	return model.Model + ": " + strings.Join(pipelines, "; ")
}
