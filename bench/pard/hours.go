package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/kept"
)

// The part "hours": device-seconds for at most 1 % of the requests dropped or
// late, from the decision for a worker (its cold start included) to its removal.
// No limit of workers. The headroom is the least of a grid of .01 with which the
// mean over the seeds keeps that, per case, policy and rule.

const (
	allowed = .01
	grid    = .01
)

// demandRule is how workers come and go, but for the headroom.
type demandRule struct {
	every, window, hold, ahead time.Duration
	sigmas, spread             float64
	guess                      float64 // of the headroom, where the search begins
}

// fixedRules decide every 5 s and hold for 30 s.
var fixedRules = map[string]demandRule{"wiki": fixed(1.04), "tweet": fixed(1.58), "azure": fixed(1.08), "wiki2": fixed(1.09), "tweet2": fixed(.96), "azure3": fixed(1.3)}

func fixed(guess float64) demandRule {
	return demandRule{every: 5 * time.Second, window: 5 * time.Second, hold: 30 * time.Second, guess: guess}
}

// ourRules are ours, by the origin of the trace: every second, rises that stand out of
// the noise by three standard deviations, and the table of planner/flow/scaling.Table for a
// rate that is off by a twentieth. Window, hold and look-ahead were chosen with a fluid
// model of the pipelines on the first slice of each origin.
var ourRules = map[string]demandRule{
	"wiki":  ours(8, 30, 0, 1.02),
	"tweet": ours(8, 30, 3, 1.08),
	"azure": ours(4, 8, 0, 1.07),
}

func ours(window, hold, ahead time.Duration, guess float64) demandRule {
	return demandRule{every: time.Second, window: window * time.Second, hold: hold * time.Second, ahead: ahead * time.Second, sigmas: 3, spread: .05, guess: guess}
}

// contender is a policy under a rule.
type contender struct{ policy, rule string }

var contenders = []contender{{"feas", "ours"}, {"pard", "ours"}, {"pard", "fixed"}}

// search is the search for a headroom.
type search struct {
	b      *bench
	f      flags
	have   results
	lines  *kept.Lines
	pipe   *pipeline
	trace  *trace
	who    contender
	failed error
}

// hours finds the headroom of every case and contender.
func (b *bench) hours(ctx context.Context, f flags, have results, lines *kept.Lines) error {
	for _, who := range contenders {
		for _, t := range b.origins(f.held) {
			for _, p := range b.pipes {
				if !strings.Contains(who.name(p, t, 0), f.only) || f.policies != "" && f.policies != who.policy {
					continue
				}
				x := &search{b: b, f: f, have: have, lines: lines, pipe: p, trace: t, who: who}
				if x.least(ctx); x.failed != nil {
					return x.failed
				}
			}
		}
	}
	return nil
}

// origins are the traces that the rules were tuned on, or those that they were not.
func (b *bench) origins(held bool) []*trace {
	if held {
		return b.held
	}
	return b.traces
}

func (w contender) demand(t *trace) demandRule {
	if w.rule == "ours" {
		return ourRules[strings.TrimRight(t.name, "23")]
	}
	return fixedRules[t.name]
}

// scaling is the rule of a contender with a headroom.
func (w contender) scaling(p *pipeline, t *trace, headroom float64) *scaling {
	r := w.demand(t)
	out := notesRule(p, false)
	out.headroom, out.workers, out.every, out.window, out.hold, out.ahead, out.sigmas, out.spread = headroom, math.MaxInt32, r.every, r.window, r.hold, r.ahead, r.sigmas, r.spread
	return out
}

// name is that of a cell.
func (w contender) name(p *pipeline, t *trace, steps int) string {
	return fmt.Sprintf("hours/%s-%s/%s/%.2f", p.name, t.name, w.rule, grid*float64(steps))
}

// keeps returns whether the mean over so many seeds stays within what is allowed.
func (x *search) keeps(ctx context.Context, steps, seeds int) bool {
	sum, n := 0.0, 0
	rates, _ := x.trace.scaled(x.pipe.capacity(64))
	for seed := range seeds {
		c := cell{Case: x.who.name(x.pipe, x.trace, steps), Policy: x.who.policy, Seed: uint64(seed + 1)}
		w := work{c, x.trace.name, &job{pipe: x.pipe, rates: rates, rule: x.who.scaling(x.pipe, x.trace, grid*float64(steps)), top: 3}}
		anything := flags{}
		if err := x.b.one(ctx, &w, anything, x.have, x.lines); err != nil {
			x.failed = err
			return true
		}
		o := x.have[key(&c)]
		sum, n = sum+o.drop(), n+1
	}
	return sum/float64(n) <= allowed
}

// least finds the least number of grid steps that keeps what is allowed: with the
// first seed by doubling strides and halving, then with all of them step by step.
func (x *search) least(ctx context.Context) int {
	at := int(math.Round(x.who.demand(x.trace).guess / grid))
	good, bad := at, at
	if x.keeps(ctx, at, 1) {
		for stride := 2; x.failed == nil && bad == good; stride *= 2 {
			if next := max(1, good-stride); x.keeps(ctx, next, 1) && next > 1 {
				good, bad = next, next
			} else {
				bad = next
			}
		}
	} else {
		for stride := 2; x.failed == nil && bad == good; stride *= 2 {
			if next := bad + stride; x.keeps(ctx, next, 1) {
				good = next
			} else {
				good, bad = next, next
			}
		}
	}
	for good-bad > 1 && x.failed == nil {
		if mid := (good + bad) / 2; x.keeps(ctx, mid, 1) {
			good = mid
		} else {
			bad = mid
		}
	}
	for x.failed == nil && !x.keeps(ctx, good, x.f.seeds) {
		good++
	}
	for x.failed == nil && x.keeps(ctx, good-1, x.f.seeds) {
		good--
	}
	return good
}

// spent returns the headroom that a contender takes in a case: the least headroom that was measured
// with all seeds and keeps what is allowed.
func (s *sheet) spent(p *pipeline, t *trace, who contender) (headroom float64, list []outcome) {
	for steps := 1; steps < 300; steps++ {
		list := s.cellsOf(who.name(p, t, steps), who.policy)
		if len(list) < s.seeds {
			continue
		}
		if drop, _ := mean(list, (*outcome).drop); drop <= allowed {
			return grid * float64(steps), list
		}
	}
	return 0, nil
}

// hours prints device-seconds, and adds the figures: of the slices that the rules were
// tuned on, or of others.
func (s *sheet) hours(w io.Writer, b *bench, held bool) {
	if s.of("hours"); s.part == "" {
		return
	}
	if !held {
		s.spending(w, b, b.traces, "")
		return
	}
	one := *s
	one.seeds = 1
	one.spending(w, b, b.held, "; slices that no rule was tuned on")
	s.figures = one.figures
}

// spending is the table and the figures of some traces.
func (s *sheet) spending(w io.Writer, b *bench, traces []*trace, of string) {
	seconds := func(o *outcome) float64 { return o.Devices }
	sums, n := map[contender]float64{}, 0
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nhours: device-seconds for at most 1 %% dropped or late (headroom)%s\ncase\twork bound", of)
	for _, who := range contenders {
		fmt.Fprintf(t, "\t%s, rule %s", who.policy, who.rule)
	}
	fmt.Fprintln(t)
	for _, p := range b.pipes {
		for _, tr := range traces {
			row, logs, bound := "", map[contender]float64{}, 0.0
			for _, who := range contenders {
				h, list := s.spent(p, tr, who)
				if list == nil {
					continue
				}
				m, half := mean(list, seconds)
				bound, _ = mean(list, func(o *outcome) float64 { return (1 - allowed) * float64(o.Requests) * p.leastCost() / 1e3 })
				row += fmt.Sprintf("\t%.0f ± %.0f (%.2f)", m, half, h)
				logs[who] = math.Log(m)
			}
			if len(logs) < len(contenders) {
				continue
			}
			n++
			for who, x := range logs {
				sums[who] += x
			}
			sums[contender{"work", ""}] += math.Log(bound)
			fmt.Fprintf(t, "%s-%s\t%.0f%s\n", p.name, tr.name, bound, row)
		}
	}
	if n == 0 {
		return
	}
	t.Flush()
	ratio := func(a, b contender) float64 { return math.Exp((sums[a] - sums[b]) / float64(n)) }
	add := func(claim, asked string, x float64, holds figures.Holds) {
		s.add(figures.Figure{Claim: fmt.Sprintf("device-seconds for at most 1 %% drops, %s, geometric mean of %d cases%s", claim, n, of), Source: fmt.Sprintf("PARD §5.2, our scaling beside it; %d seeds", s.seeds), Asked: asked, Measured: x, Unit: "ratio", Holds: holds})
	}
	mine, same, notes := contenders[0], contenders[1], contenders[2]
	x := ratio(mine, notes)
	add("feas with our rule over pard with decisions every 5 s held for 30 s", "<= 0.88", x, figures.If(x <= .88))
	x = ratio(mine, same)
	add("feas over pard, both with our rule", "<= 0.98", x, figures.If(x <= .98))
	add("the work alone over pard with decisions every 5 s held for 30 s", "shown", ratio(contender{"work", ""}, notes), "")
}

// leastCost is the least device time of a request in milliseconds, with any batch.
func (p *pipeline) leastCost() float64 {
	sum := 0.0
	for i := range p.stages {
		least := math.Inf(1)
		for b, ms := range p.stages[i].ms[:p.stages[i].batch] {
			least = min(least, ms/float64(b+1))
		}
		sum += least
	}
	return sum
}
