package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/table"
	"inferplan/formats/document"
)

// Parts hours and unseen: device-seconds for at most 1 % of the requests dropped or late, from the decision for a worker (its cold start included) to its
// removal. Workers are not limited. The headroom is the least of a grid of .01 with which the mean over the seeds keeps that, per case, policy and rule.
const (
	allowed = .01
	grid    = .01
)

// rule says how workers come and go, but for the headroom.
type rule struct {
	every, window, hold, ahead time.Duration
	sigmas, spread             float64
	guess                      float64 // of the headroom, where the search begins
}

// fixedRules decide every 5 s and hold for 30 s. They are by trace.
var fixedRules = map[string]rule{"wiki": fixed(1.04), "tweet": fixed(1.58), "azure": fixed(1.08), "wiki2": fixed(1.09), "tweet2": fixed(.96), "azure3": fixed(1.3)}

func fixed(guess float64) rule {
	return rule{every: 5 * time.Second, window: 5 * time.Second, hold: 30 * time.Second, guess: guess}
}

// ourRules are by the origin of the trace. They decide every second, by rises that stand out of the noise by three standard deviations, and by the table of
// planner/flow/scaling.Table for a rate that is off by a twentieth. Window, hold and look-ahead were chosen with a fluid model of the pipelines on the
// first slice of each origin.
var ourRules = map[string]rule{
	"wiki":  ours(8, 30, 0, 1.02),
	"tweet": ours(8, 30, 3, 1.08),
	"azure": ours(4, 8, 0, 1.07),
}

func ours(window, hold, ahead time.Duration, guess float64) rule {
	return rule{every: time.Second, window: window * time.Second, hold: hold * time.Second, ahead: ahead * time.Second, sigmas: 3, spread: .05, guess: guess}
}

// contender is a policy under a rule.
type contender struct{ policy, rule string }

var contenders = []contender{{"feas", "ours"}, {"pard", "ours"}, {"pard", "fixed"}}

// ruleFor returns the rule on a trace.
func (c contender) ruleFor(t *trace) rule {
	if c.rule == "ours" {
		return ourRules[strings.TrimRight(t.name, "23")]
	}
	return fixedRules[t.name]
}

// scaling returns the rule of a contender with a headroom.
func (c contender) scaling(p *pipeline, t *trace, headroom float64) *scaling {
	demand, s := c.ruleFor(t), p.fixedScaling(false)
	s.EveryUS, s.WindowUS, s.HoldUS, s.LookaheadUS = document.Micros(demand.every), document.Micros(demand.window), document.Micros(demand.hold), document.Micros(demand.ahead)
	s.MaxWorkers, s.RiseSigmas, s.headroom, s.spread = math.MaxInt32, demand.sigmas, headroom, demand.spread
	return s
}

// search looks for the least headroom of a contender on a case.
type search struct {
	contender
	r     *instrument.Run
	pipe  *pipeline
	trace *trace
	seeds int
	err   error // the first; all is kept from then on
}

// outcomes returns the runs of some seeds with a headroom.
func (x *search) outcomes(steps, seeds int) (list []outcome) {
	j := tracedJob(x.pipe, x.trace, false)
	j.rule, j.largest = x.scaling(x.pipe, x.trace, grid*float64(steps)), 3
	for seed := range uint64(seeds) {
		out, err := j.run(x.r, fmt.Sprintf("hours/%s-%s/%s/%.2f", x.pipe.name, x.trace.name, x.rule, grid*float64(steps)), x.policy, seed+1)
		if err != nil {
			x.err = err
			return nil
		}
		list = append(list, out)
	}
	return list
}

// keeps returns whether the mean over some seeds stays within what is allowed.
func (x *search) keeps(steps, seeds int) bool {
	list := x.outcomes(steps, seeds)
	return x.err != nil || meanOf(list, (*outcome).dropRate) <= allowed
}

// least returns the least number of grid steps that keeps what is allowed: with the first seed by doubling strides and halving, then with all of them
// step by step.
func (x *search) least() int {
	good := int(math.Round(x.ruleFor(x.trace).guess / grid))
	bad := good
	if x.keeps(good, 1) {
		for stride := 2; x.err == nil && bad == good; stride *= 2 {
			if bad = max(1, good-stride); bad > 1 && x.keeps(bad, 1) {
				good = bad
			}
		}
	} else {
		for stride := 2; x.err == nil && bad == good; stride *= 2 {
			if good = bad + stride; !x.keeps(good, 1) {
				bad = good
			}
		}
	}
	for good-bad > 1 && x.err == nil {
		if mid := (good + bad) / 2; x.keeps(mid, 1) {
			good = mid
		} else {
			bad = mid
		}
	}
	for x.err == nil && !x.keeps(good, x.seeds) {
		good++
	}
	for x.err == nil && x.keeps(good-1, x.seeds) {
		good--
	}
	return good
}

func (b *bench) measureHours(r *instrument.Run, t *table.Table) error {
	return b.spend(r, t, b.traces, b.seeds, "")
}

// measureUnseen is of the first seed.
func (b *bench) measureUnseen(r *instrument.Run, t *table.Table) error {
	return b.spend(r, t, b.unseen, 1, "; slices that no rule was tuned on")
}

// spend measures the device-seconds of all contenders on some traces. suffix is that of the claims.
func (b *bench) spend(r *instrument.Run, t *table.Table, traces []*trace, seeds int, suffix string) error {
	t.Columns = []string{"case", "work bound"}
	for _, c := range contenders {
		t.Columns = append(t.Columns, fmt.Sprintf("%s, rule %s", c.policy, c.rule))
	}
	n, logs := float64(len(b.pipes)*len(traces)), map[contender]float64{}
	for _, p := range b.pipes {
		for _, tr := range traces {
			row := []any{p.name + "-" + tr.name, ""}
			for _, c := range contenders {
				x := &search{contender: c, r: r, pipe: p, trace: tr, seeds: seeds}
				steps := x.least()
				list := x.outcomes(steps, seeds)
				if x.err != nil {
					return x.err
				}
				deviceSeconds := func(o *outcome) float64 { return o.Devices }
				logs[c] += math.Log(meanOf(list, deviceSeconds))
				row[1] = fmt.Sprintf("%.0f", meanOf(list, func(o *outcome) float64 { return (1 - allowed) * float64(o.Requests) * p.leastCost() / 1e3 }))
				row = append(row, spread("%.0f", list, deviceSeconds)+fmt.Sprintf(" (%.2f)", grid*float64(steps)))
			}
			t.Add(row...)
		}
	}
	state := func(claim string, limit float64, over contender) {
		r.AtMost(fmt.Sprintf("device-seconds for at most 1 %% drops, %s, geometric mean of %.0f cases%s", claim, n, suffix), fmt.Sprintf("PARD §5.2, our scaling beside it; %d seeds", seeds), limit, "ratio",
			math.Exp((logs[contenders[0]]-logs[over])/n))
	}
	state("feas with our rule over pard with decisions every 5 s held for 30 s", .88, contenders[2])
	state("feas over pard, both with our rule", .98, contenders[1])
	return nil
}

// leastCost is the least device time of a request in milliseconds, with any batch.
func (p *pipeline) leastCost() float64 {
	sum := 0.0
	for i := range p.stages {
		least := math.Inf(1)
		for batch := 1; batch <= p.stages[i].batch; batch++ {
			least = min(least, p.stages[i].perRequest(batch))
		}
		sum += least
	}
	return sum
}
