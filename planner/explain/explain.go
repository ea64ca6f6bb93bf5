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
func Lines(p *formats.Plan) []string {
	var out []string

	// How good the plan is, and what it uses.
	out = append(out, objective(p))
	if l := tightest(p); l != "" {
		out = append(out, l)
	}
	if l := devices(p); l != "" {
		out = append(out, l)
	}
	if c := p.Replan; c != nil {
		out = append(out, fmt.Sprintf("moved: %d of %d devices load something new (at most %s asked); the others go on as they are", c.MovedGPUs, c.GPUs, kind.Percent(c.MaxMoved)))
	}

	// What limits it.
	out = append(out, limits(p)...)
	if m := planner.MethodOf(p.Kind); m != nil && m.Explain != nil {
		out = append(out, m.Explain(p)...)
	}

	// What simulation shows.
	if c := p.Certified; c != nil && p.Objective.Basis == formats.BasisSimulation {
		out = append(out, holds(p))
		out = append(out, slower(c)...)
	} else if c != nil {
		out = append(out, fmt.Sprintf("certified by simulation: load %.4g of the planned rates at attainment %.4g, %d runs of %s",
			c.LoadFactor, c.Attainment, c.Runs, document.Duration(c.DurationUS)))
	}
	return out
}

// simulationLine says that simulation decided the value of a plan, and what the fluid program says.
func holds(p *formats.Plan) string {
	c := p.Certified
	served := "model"
	if slices.ContainsFunc(p.Served(), func(s formats.Served) bool { return s.Class != "" }) {
		served = "class"
	}
	share := fmt.Sprintf("at least %s of the requests of every %s are in time", kind.Percent(c.Attainment), served)
	if shares := p.Shares(); slices.Max(shares) > slices.Min(shares) {
		share = fmt.Sprintf("every %s has as many requests in time as its percentile asks for", served)
	}
	s := fmt.Sprintf("holds in simulation: at these rates %s, %d runs of %s", share, c.Runs, document.Duration(c.DurationUS))
	if f := p.Objective.Fluid; f != nil {
		s += fmt.Sprintf("; without queueing the devices of the plan would carry %s", kind.Number(*f))
	}
	return s
}

// certificateSlowdowns returns lines about the certified latencies if runs take longer than profiled.
func slower(c *formats.Certificate) []string {
	models := make([]Latencies, len(c.Models))
	for i := range c.Models {
		m := &c.Models[i]
		models[i] = Latencies{Key: m.Key(), P50US: m.P50US, P99US: m.P99US, Slower: m.Slower}
	}
	return Slower(models)
}

// LatencyReport holds the latencies of a model or class as profiled, and with slower runs.
type Latencies struct {
	Key          formats.ModelClass
	P50US, P99US document.Micros
	Slower       []formats.Slower
}

// SlowdownLines says how latencies change if runs take longer than profiled: for the model whose
// 50th percentile grows most. If no model has such figures, it returns nothing.
func Slower(models []Latencies) []string {
	var worst *Latencies
	growth := 0.0
	for i := range models {
		m := &models[i]
		if n := len(m.Slower); n > 0 && m.P50US > 0 {
			if g := float64(m.Slower[n-1].P50US) / float64(m.P50US); worst == nil || g > growth {
				worst, growth = m, g
			}
		}
	}
	if worst == nil {
		return nil
	}
	parts := []string{fmt.Sprintf("as profiled p50 %s and p99 %s", rounded(worst.P50US), rounded(worst.P99US))}
	for _, s := range worst.Slower {
		parts = append(parts, fmt.Sprintf("by %s p50 %s, p99 %s, %s in time", kind.Percent(s.By), rounded(s.P50US), rounded(s.P99US), kind.Percent(s.Attainment)))
	}
	return []string{fmt.Sprintf("where runs take longer than profiled, %s changes most: %s", worst.Key, strings.Join(parts, "; "))}
}

// threeDigits returns a time with three significant digits.
func rounded(t document.Micros) string {
	d := t.D()
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// stopReasons are the texts of what ended the search.
var stops = map[string]string{
	"proved": "proven optimal", "gap": "stopped at the gap asked for", "trials": "better plans fail in simulation", "work": "stopped at the work limit",
	"time": "stopped at the time limit", "interrupt": "interrupted",
}

// units are the units of the objectives.
var units = map[string]string{
	"throughput": "rps per unit of weight (worst-served model)", "cost": "USD per hour", "power": "watts", "gpus": "devices",
	"accuracy": "of the answers are right", "latency": "ms, the tail of the slowest range", "goodput": "requests in time per second",
}

// isMaximised holds the objectives of which more is better.
var maximised = map[string]bool{"throughput": true, "accuracy": true, "goodput": true}

// objectiveLine returns the value of the objective, its bound and gap, and what ended the search.
func objective(p *formats.Plan) string {
	o := p.Objective
	s := fmt.Sprintf("%s: %s %s", o.Name, kind.Number(o.Value), units[o.Name])
	if o.Bound != nil {
		word := "below"
		if maximised[o.Name] {
			word = "above"
		}
		among := ""
		if o.BoundAmong != "" {
			among = " " + o.BoundAmong
		}
		s += fmt.Sprintf("; no plan%s is %s %s", among, word, kind.Number(*o.Bound))
	}
	if o.Gap != nil && *o.Gap > 0 {
		s += fmt.Sprintf(": within %s of the optimum", kind.Percent(*o.Gap))
	}
	// If there is no bound, as in a recorded plan of another planner, more work closes no gap.
	if why, ok := stops[p.StoppedBy]; ok && (o.Bound != nil || p.StoppedBy != "work") {
		if p.StoppedBy == "work" && hasEffort(p) {
			why += "; a higher --effort may close the gap"
		}
		s += " (" + why + ")"
	}
	return s
}

// hasEffort reports whether the method of a plan has the option effort.
func hasEffort(p *formats.Plan) bool {
	return slices.ContainsFunc(formats.PlanOptions(p.Kind), func(o document.Option) bool { return o.Name == "effort" })
}

// limitingModels returns the models whose rates set the objective, if they are not all.
func tightest(p *formats.Plan) string {
	served := p.Served()
	if len(served) < 2 || p.Objective.Name != "throughput" {
		return ""
	}
	var names []string
	for i := range served {
		m := &served[i]
		if m.Weight > 0 && m.RPS/m.Weight <= p.Objective.Value*(1+1e-6) {
			names = append(names, m.Key().String())
		}
	}
	if len(names) == 0 || len(names) == len(served) {
		return ""
	}
	verb := " sets"
	if len(names) > 1 {
		verb = " set"
	}
	return strings.Join(names, " and ") + verb + " the objective; the other models have a little more than they need"
}

// devicesLine returns how much of each pool the plan uses.
func devices(p *formats.Plan) string {
	if !slices.ContainsFunc(p.Deployment, func(d formats.Deployed) bool { return len(d.Pipelines) > 0 }) {
		return "" // this kind has another form of deployment, and its method describes it
	}
	var parts []string
	for _, pool := range p.Pools {
		if pool.Sharing != formats.SharingTime {
			parts = append(parts, fmt.Sprintf("%d of %d %s", len(p.Touched(&pool)), pool.Count, pool.Device))
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

// boundRelaxations says for an objective what its limits count that a plan cannot have, and from
// which relative difference to the proven bound on that is mentioned.
var relaxations = map[string]struct {
	what  string
	above float64
}{"throughput": {"fractions of devices", .005}, "accuracy": {"mixtures of cascades", 1e-4}}

// limitLines returns by how much a little more of something would raise the bound.
func limits(p *formats.Plan) []string {
	ls := slices.Clone(p.Limits)
	slices.SortStableFunc(ls, func(a, b formats.Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	var out []string
	for i, l := range ls {
		if i == shownLimits {
			out = append(out, fmt.Sprintf("  and %d smaller limits", len(ls)-i))
			break
		}
		head := "bottleneck: "
		if i > 0 {
			head = strings.Repeat(" ", len(head))
		}
		of, name, _ := strings.Cut(l.What, " ")
		what := name
		if of == "slo" {
			what = "the SLO of " + name
		}
		// The gain is that of the relaxation. If whole devices, or one cascade per range, made the
		// proven bound lower than the relaxation, the line has both ends, because the rise is not
		// one of the proven bound.
		from := "to " + kind.Number(l.Value)
		relaxed := relaxations[p.Objective.Name]
		if now := l.Value / (1 + l.Gain); relaxed.what != "" && p.Objective.Bound != nil && now > *p.Objective.Bound*(1+relaxed.above) {
			from = fmt.Sprintf("from %s to %s, counting %s", kind.Number(now), kind.Number(l.Value), relaxed.what)
		}
		out = append(out, fmt.Sprintf("%s%s. %s would raise the upper bound by %s (%s).", head, what, more(of, name, l.Change), kind.Percent(l.Gain), from))
	}
	return out
}

// changeText returns the change of a limit as text.
func more(of, name, change string) string {
	switch {
	case of == "device" && change == "+1 device":
		return "One more " + name
	case of == "slo":
		return strings.TrimPrefix(change, "+") + " more"
	}
	return change
}
