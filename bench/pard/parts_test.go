package main

import (
	"io"
	"math"
	"slices"
	"testing"

	"inferplan/bench/instrument"
	"inferplan/bench/pard/ttft"
	"inferplan/formats"
)

// climbing is a trace that rises and falls.
func climbing(n int) *trace {
	t := &trace{name: "azure"}
	for i := range n {
		t.counts = append(t.counts, 2+math.Sin(float64(i)/20))
	}
	return t
}

// Every query of a run ends once, the same for the same seed, and the oracle drops
// no more than who knows nothing.
func TestRAG(t *testing.T) {
	good := map[string]int64{}
	for _, name := range ttft.Names {
		a, err := ragOutcome(climbing(300), 4, name, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ragOutcome(climbing(300), 4, name, 1)
		if err != nil {
			t.Fatal(err)
		}
		if a.Good != b.Good || a.Late != b.Late || a.Good+a.Late > a.Requests || a.Good == 0 {
			t.Errorf("%s: %+v, then %+v", name, a, b)
		}
		good[name] = a.Good
	}
	if good["oracle"] < good["proactive"] {
		t.Errorf("%v in time", good)
	}
}

// A plan of the fewest devices attains what is asked, and with fewer devices the same
// algorithm's plan does not carry the rate.
func TestFewest(t *testing.T) {
	p := toy(t)
	rate := p.capacity(3)
	for _, a := range []string{"paths", "inferline"} {
		out, err := p.fewest(t.Context(), a, rate)
		if err != nil {
			t.Fatal(err)
		}
		if float64(out.Good) < attained*float64(out.Requests) || out.Objective < 3 || out.Objective > 8 {
			t.Errorf("%s: %+v", a, out)
		}
	}
}

// The headroom that is found keeps what is allowed, and one step less does not.
func TestHours(t *testing.T) {
	p := toy(t)
	p.slo *= 10 // so that 64 workers carry few
	for i := range p.stages {
		for b := range p.stages[i].ms {
			p.stages[i].ms[b] *= 10
		}
	}
	in := &instrument.Instrument{Name: "pard", Keeps: true, Parts: []instrument.Part{{Name: "hours", Measure: func(r *instrument.Run, _ *instrument.Table) error {
		x := &search{contender: contenders[0], r: r, pipe: p, trace: climbing(25), seeds: 2}
		steps := x.least()
		if x.err == nil && (!x.keeps(steps, 2) || x.keeps(steps-1, 2)) {
			t.Errorf("%d steps are not the least", steps)
		}
		if list := x.outcomes(steps, 2); x.err == nil && (len(list) != 2 || list[0].Devices < 25) {
			t.Errorf("%d steps: outcomes %+v", steps, list)
		}
		return x.err
	}}}}
	if err := in.Run(t.Context(), []string{"-keep", t.TempDir()}, io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}

// A trace's own rule is the one that is deployed.
func TestRules(t *testing.T) {
	p := toy(t)
	for name, r := range ourRules {
		rule := contender{"feas", "ours"}.scaling(p, &trace{name: name})
		rule.MaxWorkers = 30
		plan := p.deploy(formats.PolicySpec{Name: "feas"}, &rule, p.want(100, &rule), p.capacity(10))
		if err := plan.Validate(); err != nil {
			t.Fatal(err)
		}
		if got := formats.FlowOf(plan).Scaling; got.EveryUS != r.EveryUS || got.HoldUS != r.HoldUS || got.LookaheadUS != r.LookaheadUS || rule.headroom != r.headroom {
			t.Errorf("%s: %+v", name, rule)
		}
	}
	if !slices.Equal(contenders, []contender{{"feas", "ours"}, {"pard", "ours"}, {"pard", "fixed"}}) {
		t.Error("other contenders than the figures name")
	}
}
