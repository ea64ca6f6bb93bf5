package explain

import (
	"fmt"
	"strings"

	"inferplan/formats"
)

// gears tells, range by range, which models answer. A stage with a threshold
// passes on what it is less certain of.
func gears(p *formats.Plan) []string {
	if p.Gear == nil {
		return nil
	}
	var out []string
	if p.Objective.Name != "accuracy" {
		accuracy := 0.0
		for i := range p.Gear.Gears {
			accuracy += p.Gear.Gears[i].Weight * p.Gear.Gears[i].Accuracy
		}
		out = append(out, fmt.Sprintf("accuracy: %.4f over the ranges by weight, %.4f asked for", accuracy, p.Gear.Accuracy))
	}
	for i := range p.Models {
		if line := inStages(&p.Models[i]); line != "" {
			out = append(out, line)
		}
	}
	for i := range p.Gear.Gears {
		g := &p.Gear.Gears[i]
		var stages []string
		for k := range g.Stages {
			s := &g.Stages[k]
			text := s.Model
			if s.Level > 0 {
				text += fmt.Sprintf("(%.3g)", s.Threshold)
			}
			stages = append(stages, text)
		}
		line := fmt.Sprintf("up to %s rps: %s: accuracy %.4f of at most %.4f, %s %s ms, busiest device %s", number(g.ToQPS), strings.Join(stages, " > "),
			g.Accuracy, g.Bound, p.Gear.Percentile, number(float64(g.LatencyUS.D())/1e6), percent(g.Utilisation))
		if g.AccuracyHeldOut != nil && g.HeldOutInterval != nil {
			line += fmt.Sprintf("; held out %.4f (%.4f to %.4f)", *g.AccuracyHeldOut, g.HeldOutInterval[0], g.HeldOutInterval[1])
		}
		out = append(out, line)
	}
	return out
}

// inStages tells where a member runs that is cut into stages somewhere; empty: it is
// not.
func inStages(m *formats.PlanModel) string {
	var ways []string
	cut := false
	for i := range m.Pipelines {
		l := &m.Pipelines[i]
		cut = cut || len(l.Stages) > 1
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
		ways = append(ways, strings.Join(parts, " > "))
	}
	if !cut {
		return ""
	}
	return m.Model + ": " + strings.Join(ways, "; ")
}
