package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
)

// shownLimits is the number of limits that get a line each.
const shownLimits = 5

// PlanLines describes a plan, for the closing table of `plan solve` and for `plan explain`.
func PlanLines(p *formats.Plan) []string {
	var lines []string

	// How good the plan is, and what it uses.
	lines = append(lines, objectiveLine(p))
	if l := limitingModels(p); l != "" {
		lines = append(lines, l)
	}
	if l := devicesLine(p); l != "" {
		lines = append(lines, l)
	}
	if c := p.Replan; c != nil {
		lines = append(lines, fmt.Sprintf("moved: %d of %d devices load something new (at most %s asked); the others go on as they are", c.MovedGPUs, c.GPUs, kind.FormatPercent(c.MaxMoved)))
		lines = append(lines, moveLines(p)...)
	}

	// What limits it.
	lines = append(lines, limitLines(p)...)
	if m := planner.MethodOf(p.Kind); m != nil && m.Explain != nil {
		lines = append(lines, m.Explain(p)...)
	}

	// What simulation shows.
	if c := p.Certificate; c != nil && p.Objective.Basis == formats.BasisSimulation {
		lines = append(lines, simulationLine(p))
		lines = append(lines, certificateSlowdowns(c)...)
	} else if c != nil {
		lines = append(lines, fmt.Sprintf("certified by simulation: load %.4g of the planned rates at attainment %.4g, %d runs of %s",
			c.LoadFactor, c.Attainment, c.Runs, document.Duration(c.DurationUS)))
	}
	return lines
}

// simulationLine says that simulation decided the value of a plan, and what the fluid program says.
func simulationLine(p *formats.Plan) string {
	c := p.Certificate
	unit := "model"
	if slices.ContainsFunc(p.ServedModels(), func(s formats.Served) bool { return s.Class != "" }) {
		unit = "class"
	}
	inTime := fmt.Sprintf("at least %s of the requests of every %s are in time", kind.FormatPercent(c.Attainment), unit)
	if shares := p.AttainmentShares(); slices.Max(shares) > slices.Min(shares) {
		inTime = fmt.Sprintf("every %s has as many requests in time as its percentile asks for", unit)
	}
	s := fmt.Sprintf("holds in simulation: at these rates %s, %d runs of %s", inTime, c.Runs, document.Duration(c.DurationUS))
	if f := p.Objective.Fluid; f != nil {
		s += fmt.Sprintf("; without queueing the devices of the plan would carry %s", kind.FormatNumber(*f))
	}
	return s
}

// certificateSlowdowns returns lines about the certified latencies if runs take longer than profiled.
func certificateSlowdowns(c *formats.Certificate) []string {
	models := make([]LatencyReport, len(c.Models))
	for i := range c.Models {
		m := &c.Models[i]
		models[i] = LatencyReport{Key: m.Key(), P50US: m.P50US, P99US: m.P99US, Slowdowns: m.Slower}
	}
	return SlowdownLines(models)
}

// LatencyReport holds the latencies of a model or class as profiled, and with slower runs.
type LatencyReport struct {
	Key          formats.ModelClass
	P50US, P99US document.Micros
	Slowdowns    []formats.Slower
}

// SlowdownLines says how latencies change if runs take longer than profiled: for the model whose
// 50th percentile grows most. If no model has such figures, it returns nothing.
func SlowdownLines(models []LatencyReport) []string {
	var mostChanged *LatencyReport
	growth := 0.0
	for i := range models {
		m := &models[i]
		if n := len(m.Slowdowns); n > 0 && m.P50US > 0 {
			// The last slowdown is the largest.
			if g := float64(m.Slowdowns[n-1].P50US) / float64(m.P50US); mostChanged == nil || g > growth {
				mostChanged, growth = m, g
			}
		}
	}
	if mostChanged == nil {
		return nil
	}
	parts := []string{fmt.Sprintf("as profiled p50 %s and p99 %s", threeDigits(mostChanged.P50US), threeDigits(mostChanged.P99US))}
	for _, s := range mostChanged.Slowdowns {
		parts = append(parts, fmt.Sprintf("by %s p50 %s, p99 %s, %s in time", kind.FormatPercent(s.ExtraShare), threeDigits(s.P50US), threeDigits(s.P99US), kind.FormatPercent(s.Attainment)))
	}
	return []string{fmt.Sprintf("where runs take longer than profiled, %s changes most: %s", mostChanged.Key, strings.Join(parts, "; "))}
}

// threeDigits returns a time with three significant digits.
func threeDigits(t document.Micros) string {
	d := t.D()
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// stopReasons are the texts of what ended the search.
var stopReasons = map[string]string{
	"proved": "proven optimal", "gap": "stopped at the gap asked for", "trials": "better plans fail in simulation", "work": "stopped at the work limit",
	"time": "stopped at the time limit", "interrupt": "interrupted",
}

// units are the units of the objectives.
var units = map[string]string{
	"throughput": "rps per unit of weight (worst-served model)", "cost": "USD per hour", "power": "watts", "gpus": "devices",
	"accuracy": "of the answers are right", "latency": "ms, the tail of the slowest range", "goodput": "requests in time per second",
}

// isMaximised holds the objectives of which more is better.
var isMaximised = map[string]bool{"throughput": true, "accuracy": true, "goodput": true}

// objectiveLine returns the value of the objective, its bound and gap, and what ended the search.
func objectiveLine(p *formats.Plan) string {
	o := p.Objective
	s := fmt.Sprintf("%s: %s %s", o.Name, kind.FormatNumber(o.Value), units[o.Name])
	if o.Bound != nil {
		side := "below"
		if isMaximised[o.Name] {
			side = "above"
		}
		planSet := ""
		if o.BoundAmong != "" {
			planSet = " " + o.BoundAmong
		}
		s += fmt.Sprintf("; no plan%s is %s %s", planSet, side, kind.FormatNumber(*o.Bound))
	}
	if o.Gap != nil && *o.Gap > 0 {
		s += fmt.Sprintf(": within %s of the optimum", kind.FormatPercent(*o.Gap))
	}
	// If there is no bound, as in a recorded plan of another planner, more work closes no gap.
	if reason, ok := stopReasons[p.StoppedBy]; ok && (o.Bound != nil || p.StoppedBy != "work") {
		if p.StoppedBy == "work" && hasEffort(p) {
			reason += "; a higher --effort may close the gap"
		}
		s += " (" + reason + ")"
	}
	return s
}

// hasEffort reports whether the method of a plan has the option effort.
func hasEffort(p *formats.Plan) bool {
	return slices.ContainsFunc(formats.PlanOptions(p.Kind), func(o document.Option) bool { return o.Name == "effort" })
}

// limitingModels returns the models whose rates set the objective, if they are not all.
func limitingModels(p *formats.Plan) string {
	servedModels := p.ServedModels()
	if len(servedModels) < 2 || p.Objective.Name != "throughput" {
		return ""
	}
	var names []string
	for i := range servedModels {
		m := &servedModels[i]
		if m.Weight > 0 && m.RPS/m.Weight <= p.Objective.Value*(1+1e-6) {
			names = append(names, m.Key().String())
		}
	}
	if len(names) == 0 || len(names) == len(servedModels) {
		return ""
	}
	verb := " sets"
	if len(names) > 1 {
		verb = " set"
	}
	return strings.Join(names, " and ") + verb + " the objective; the other models have a little more than they need"
}

// devicesLine returns how much of each pool the plan uses.
func devicesLine(p *formats.Plan) string {
	if !slices.ContainsFunc(p.Deployment, func(d formats.Deployed) bool { return len(d.Pipelines) > 0 }) {
		return "" // this kind has another form of deployment, and its method describes it
	}
	var parts []string
	for _, pool := range p.Pools {
		if pool.Sharing != formats.SharingTime {
			parts = append(parts, fmt.Sprintf("%d of %d %s", len(p.UsedDevices(&pool)), pool.Count, pool.Device))
			continue
		}
		share := 0.0
		for s := range p.Stages() {
			if s.Device == pool.Device {
				share += s.GPUs
			}
		}
		parts = append(parts, fmt.Sprintf("%.2f of %d %s in time", share, pool.Count, pool.Device))
	}
	if len(parts) == 0 {
		return ""
	}
	return "devices used: " + strings.Join(parts, ", ")
}

// boundRelaxations says for an objective what the program behind its limits (a relaxation) counts that a plan cannot
// have, in words, and from which relative difference between its value and the proven bound on that is mentioned.
var boundRelaxations = map[string]struct {
	fractions string
	minExcess float64
}{"throughput": {"fractions of devices", .005}, "accuracy": {"mixtures of cascades", 1e-4}}

// limitLines returns by how much a little more of something would raise the bound, one line for each limit of the plan, the largest gain
// first. The first line has a heading, and the others are indented below it.
func limitLines(p *formats.Plan) []string {
	sorted := slices.Clone(p.Limits)
	slices.SortStableFunc(sorted, func(a, b formats.Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	var lines []string
	for i, l := range sorted {
		if i == shownLimits {
			lines = append(lines, fmt.Sprintf("  and %d smaller limits", len(sorted)-i))
			break
		}
		heading := "bottleneck: "
		if i > 0 {
			heading = strings.Repeat(" ", len(heading))
		}
		limitKind, name, _ := strings.Cut(l.Constraint, " ") // such as "device a100" or "slo resnet50"
		subject := name
		if limitKind == "slo" {
			subject = "the SLO of " + name
		}
		// A limit has the value of the relaxation with a little more of it, and the gain over the value without. Usually the latter is
		// the proven bound, and the line only says to what the bound would rise. If the proven bound is lower, as it was proven with whole
		// devices or with one cascade per range, the line says from where the relaxation would rise, too.
		effect := "to " + kind.FormatNumber(l.Value)
		relaxation := boundRelaxations[p.Objective.Name]
		relaxedValue := l.Value / (1 + l.Gain) // of the relaxation as it is
		if relaxation.fractions != "" && p.Objective.Bound != nil && relaxedValue > *p.Objective.Bound*(1+relaxation.minExcess) {
			effect = fmt.Sprintf("from %s to %s, counting %s", kind.FormatNumber(relaxedValue), kind.FormatNumber(l.Value), relaxation.fractions)
		}
		lines = append(lines, fmt.Sprintf("%s%s. %s would raise the upper bound by %s (%s).", heading, subject, changeText(limitKind, name, l.Change), kind.FormatPercent(l.Gain), effect))
	}
	return lines
}

// changeText returns the change of a limit as the subject of a sentence: "One more a100" for the change "+1 device" of
// the kind "device", "10ms more" for "+10ms" of the kind "slo". Other changes are texts already. name is that of the
// device kind or model.
func changeText(limitKind, name, change string) string {
	switch {
	case limitKind == "device" && change == "+1 device":
		return "One more " + name
	case limitKind == "slo":
		return strings.TrimPrefix(change, "+") + " more"
	}
	return change
}

// maxMoveLines is the largest number of moves that are described one by one.
const maxMoveLines = 20

// moveLines returns the value of the objective that the plan which ran before has today, and the devices that load something new.
func moveLines(p *formats.Plan) (lines []string) {
	c := p.Replan
	if c.RunningValue != nil {
		lines = append(lines, fmt.Sprintf("gained: %s is %s, and was %s", p.Objective.Name, kind.FormatNumber(p.Objective.Value), kind.FormatNumber(*c.RunningValue)))
	}
	for i, m := range c.Moves {
		if i == maxMoveLines {
			return append(lines, fmt.Sprintf("  and %d more", len(c.Moves)-i))
		}
		devices := fmt.Sprintf("%s %d", m.Device, m.First)
		if m.Count > 1 {
			devices += fmt.Sprintf(" to %d", m.First+m.Count-1)
		}
		lines = append(lines, fmt.Sprintf("  %s: %s, before %s", devices, m.NewContent, cmp.Or(m.OldContent, "idle")))
	}
	return lines
}
