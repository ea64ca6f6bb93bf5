package main

import (
	"math"
	"slices"
	"testing"

	"inferplan/bench/pard/ttft"
)

// climbing is a trace that rises and falls.
func climbing(n int) *trace {
	t := &trace{name: "azure"}
	for i := range n {
		t.rates = append(t.rates, 2+math.Sin(float64(i)/20))
	}
	return t
}

// Every query of a run ends once, the same for the same seed, and the oracle drops
// no more than who knows nothing.
func TestRAG(t *testing.T) {
	good := map[string]int64{}
	for _, name := range ttft.Names {
		a, err := ragRun(climbing(300), 4, name, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ragRun(climbing(300), 4, name, 1)
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
		if float64(out.Good) < attained*float64(out.Requests) || out.Value < 3 || out.Value > 8 {
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
	tr := climbing(25)
	b := &bench{pipes: []*pipeline{p}, traces: []*trace{tr}}
	for _, who := range contenders[:1] {
		x := &search{b: b, f: flags{seeds: 2}, have: results{}, pipe: p, trace: tr, who: who}
		steps := x.least(t.Context())
		if x.failed != nil {
			t.Fatal(x.failed)
		}
		if !x.keeps(t.Context(), steps, 2) || x.keeps(t.Context(), steps-1, 2) {
			t.Errorf("%v: %d steps are not the least", who, steps)
		}
		s := &sheet{have: x.have, seeds: 2}
		if h, list := s.spent(p, tr, who); math.Abs(h-grid*float64(steps)) > 1e-9 || len(list) != 2 || list[0].Devices < 25 {
			t.Errorf("%v: %v of %d outcomes", who, h, len(list))
		}
	}
}

// A trace's own rule is the one that is deployed.
func TestRules(t *testing.T) {
	p := toy(t)
	for name, r := range ourRules {
		rule := contender{"feas", "ours"}.scaling(p, &trace{name: name}, 1.1)
		rule.workers = 30
		plan := p.deploy("feas", nil, rule, p.want(100, rule), p.capacity(10))
		if err := plan.Validate(); err != nil {
			t.Fatal(err)
		}
		if rule.every != r.every || rule.hold != r.hold || rule.ahead != r.ahead || rule.headroom != 1.1 {
			t.Errorf("%s: %+v", name, rule)
		}
	}
	if !slices.Equal(contenders, []contender{{"feas", "ours"}, {"pard", "ours"}, {"pard", "fixed"}}) {
		t.Error("other contenders than the figures name")
	}
}
