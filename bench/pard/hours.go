package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/formats/document"
)

// Parts hours and unseen: device-seconds for at most 1 % of the requests dropped or late, from the decision for a worker (its cold start included) to its
// removal. Workers are not limited. The headroom is the least of a grid of .01 with which the mean over the seeds keeps that, per case, policy and rule.
const (
	allowed = .01
	grid    = .01
)

// fixedHeadrooms are where the search for a headroom of the fixed rule begins, by trace. The rule decides every 5 s and holds for 30 s.
var fixedHeadrooms = map[string]float64{"wiki": 1.04, "tweet": 1.58, "azure": 1.08, "wiki2": 1.09, "tweet2": .96, "azure3": 1.3}

// ourRules are by the origin of the trace. They decide every second, by rises that stand out of the noise by three standard deviations, and by the table of
// planner/flow/scaling.Table for a rate that is off by a twentieth. Window, hold and look-ahead were chosen with a fluid model of the pipelines on the
// first slice of each origin.
var ourRules = map[string]scaling{
	"wiki":  ourRule(8, 30, 0, 1.02),
	"tweet": ourRule(8, 30, 3, 1.08),
	"azure": ourRule(4, 8, 0, 1.07),
}

// ourRule returns a rule of ours. Times are in seconds. The search for its headroom begins at the one that is given.
func ourRule(window, hold, ahead time.Duration, headroom float64) scaling {
	micros := func(seconds time.Duration) document.Micros { return document.Micros(seconds * time.Second) }
	return scaling{FlowScaling: formats.FlowScaling{EveryUS: micros(1), WindowUS: micros(window), HoldUS: micros(hold), LookaheadUS: micros(ahead), RiseSigmas: 3}, spread: .05, headroom: headroom}
}

// contender is a policy under a rule.
type contender struct{ policy, rule string }

var contenders = []contender{{"feas", "ours"}, {"pard", "ours"}, {"pard", "fixed"}}

// scaling returns the rule of a contender on a trace, without a limit of workers, with the headroom where the search begins.
func (c contender) scaling(p *pipeline, t *trace) scaling {
	s := *p.fixedScaling(false)
	if s.headroom = fixedHeadrooms[t.name]; c.rule == "ours" {
		cold := s.cold
		s = ourRules[strings.TrimRight(t.name, "23")]
		s.cold = cold
	}
	s.MaxWorkers = math.MaxInt32
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
	rule := x.scaling(x.pipe, x.trace)
	rule.headroom = grid * float64(steps)
	j.rule, j.largest = &rule, 3
	s := j.scenario(fmt.Sprintf("hours/%s-%s/%s/%.2f", x.pipe.name, x.trace.name, x.rule, rule.headroom))
	for seed := range uint64(seeds) {
		out, err := s.measured(x.r, x.policy, seed+1)
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
	good := int(math.Round(x.scaling(x.pipe, x.trace).headroom / grid))
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

func (b *bench) measureHours(r *instrument.Run, t *instrument.Table) error {
	return b.spend(r, t, b.traces, b.seeds, "")
}

// measureUnseen is of the first seed.
func (b *bench) measureUnseen(r *instrument.Run, t *instrument.Table) error {
	return b.spend(r, t, b.unseen, 1, "; slices that no rule was tuned on")
}

// spend measures the device-seconds of all contenders on some traces. suffix is that of the claims.
func (b *bench) spend(r *instrument.Run, t *instrument.Table, traces []*trace, seeds int, suffix string) error {
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
