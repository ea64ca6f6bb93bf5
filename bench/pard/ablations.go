package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/sim"
)

// ablations are PARD with one part changed, with the paper's claim of how much more each drops on lv under tweet. The paper gives some a range that its own
// load explains; they have no range here and are only in the table.
var ablations = []struct {
	policy, source string
	least, largest float64 // drop rate over PARD's
}{
	{"back", "§5.3: 1.1 to 3.6 times higher", 1.1, 4.6},
	{"oc", "§5.3: 2.1 times higher", 2.1, 3.1},
	{"split", "§5.3: 2.6 times higher", 2.6, 3.6},
	{"wcl", "§5.3: 2.8 times higher", 2.8, 3.8},
	{"upper", "§5.3: 1.3 times higher", 1.3, 2.3},
	{"fcfs", "§5.3: 1.8 times higher", 1.8, 2.8},
	{"lbf", "§5.3: 2.2 times higher", 2.2, 3.2},
	{policy: "sf"}, {policy: "lower"}, {policy: "hbf"}, {policy: "instant"},
}

// measureAblations holds PARD's parts against the paper's claims about them, in the paper's case and over all cases of S0.
func (b *bench) measureAblations(r *instrument.Run, t *instrument.Table) error {
	policies := []string{"pard", "feas-hbf"}
	for _, a := range ablations {
		policies = append(policies, a.policy)
	}
	d, err := b.measureDrops(r, t, "S0", b.tracedScenarios("S0", b.traces, false), policies...)
	if err != nil {
		return err
	}
	for _, a := range ablations {
		over := d.against(a.policy)
		t.Note("%s: %.3f times the drop rate of pard (geometric mean; %.2f to %.2f)", a.policy, over.mean, over.least, over.largest)
		if a.least == 0 {
			continue
		}
		asked := fmt.Sprintf("%.2g to %.2g", a.least, a.largest)
		one := meanOf(d.runs("S0/lv-tweet", a.policy), (*outcome).dropRate) / meanOf(d.runs("S0/lv-tweet", "pard"), (*outcome).dropRate)
		r.Figure(figures.Figure{Claim: "S0/lv-tweet: drop rate of " + a.policy + " over pard's", Source: fmt.Sprintf("PARD %s; %d seeds", a.source, d.seeds), Asked: asked,
			Measured: one, Unit: "ratio", Holds: verdict(one, a.least, a.largest)})
		r.Figure(figures.Figure{Claim: fmt.Sprintf("S0: drop rate of %s over pard's, geometric mean of %d cases", a.policy, len(d.names)),
			Source: fmt.Sprintf("PARD %s (lv on tweet); here %.2f to %.2f", a.source, over.least, over.largest), Asked: asked, Measured: over.mean, Unit: "ratio", Holds: verdict(over.mean, a.least, a.largest)})
	}
	return nil
}

// measureTrouble shows what happens if times vary, a worker is lost or profiles are wrong.
func (b *bench) measureTrouble(r *instrument.Run, t *instrument.Table) error {
	noisy, lost, slow, slower := b.liveTweets(), b.liveTweets(), b.liveTweets(), b.liveTweets()
	noisy.noise, slow.slowdown, slower.slowdown = .1, 1.2, 1.5
	// A worker of the module with most of them, while the load is highest.
	lost.faults = []sim.Fault{{At: 1050 * time.Second, Device: 0}, {At: 1080 * time.Second, Device: 0, ComesBack: true}}
	_, err := b.measureDrops(r, t, "trouble", []scenario{noisy.scenario("trouble/noise-0.1"), lost.scenario("trouble/worker-lost-30s"), slow.scenario("trouble/profiles-wrong-1.2"), slower.scenario("trouble/profiles-wrong-1.5")},
		append(slices.Clone(plain), "feas+token", "feas+learn=0")...)
	return err
}

// liveTweets returns the run of lv on tweet.
func (b *bench) liveTweets() *job { return tracedJob(b.pipe("lv"), b.traces[1], false) }

// measureSkew shows what clocks of workers that are off cost, where deadlines travel as times. As what is left of them they cost nothing.
func (b *bench) measureSkew(r *instrument.Run, t *instrument.Table) error {
	_, err := b.measureDrops(r, t, "skew", []scenario{b.liveTweets().scenario("skew/lv-tweet")}, "pard", "pard+skew_us=1000", "pard+skew_us=5000", "pard+skew_us=20000",
		"feas", "feas+skew_us=1000", "feas+skew_us=5000", "feas+skew_us=20000")
	return err
}

// Settings that the paper varies (figure 14), on lv.
var (
	slos    = []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond, 600 * time.Millisecond}
	lambdas = []string{"pard+lambda=.05", "pard+lambda=.075", "pard+lambda=.1", "pard+lambda=.15", "pard+lambda=.3", "pard+lambda=.5"}
	windows = []string{"pard+window_us=1000000", "pard+window_us=3000000", "pard+window_us=5000000", "pard+window_us=7000000"}
)

// measureSensitivity measures the paper's figure 14: over the SLO on tweet, over λ and the window on every trace.
func (b *bench) measureSensitivity(r *instrument.Run, t *instrument.Table) error {
	bySLO := &instrument.Table{}
	var list []scenario
	for _, slo := range slos {
		p := *b.pipe("lv")
		p.slo, p.stages = slo, slices.Clone(p.stages)
		if p.chooseBatches(.9) == nil {
			list = append(list, tracedJob(&p, b.traces[1], false).scenario("sensitivity/slo-"+slo.String()))
		}
	}
	d, err := b.measureDrops(r, bySLO, "sensitivity", list, "nexus", "clipper++", "pard", "feas")
	if err != nil {
		return err
	}
	least := math.Inf(1)
	for _, name := range d.names {
		for _, policy := range []string{"nexus", "clipper++"} {
			least = min(least, percentDropped(d.runs(name, policy))/percentDropped(d.runs(name, "pard")))
		}
	}
	r.Figure(figures.Figure{Claim: "lv on tweet, SLO 200 to 600 ms: least of nexus' and clipper++'s drop rate over pard's", Source: "PARD figure 14b: 1.9 to 5.3", Asked: "at least 1.9", Measured: least, Unit: "ratio", Holds: orPartly(least >= 1.9)})
	list = nil
	for _, tr := range b.traces {
		list = append(list, tracedJob(b.pipe("lv"), tr, false).scenario("sensitivity/lv-"+tr.name))
	}
	if d, err = b.measureDrops(r, t, "sensitivity", list, slices.Concat(lambdas, windows)...); err != nil {
		return err
	}
	for _, row := range bySLO.Rows {
		t.Note("lv on tweet, %s: unavoidable %s, nexus %s, clipper++ %s, pard %s, feas %s", row[0], row[1], row[2], row[3], row[4], row[5])
	}
	worst := 0.
	for _, name := range d.names {
		var rates []float64
		for _, policy := range windows {
			rates = append(rates, percentDropped(d.runs(name, policy)))
		}
		worst = max(worst, slices.Max(rates)/slices.Min(rates))
	}
	r.AtMost("lv, windows of 1 to 7 s: largest over least drop rate of pard on a trace", "PARD figure 14d: 1.03 to 1.06", 1.063, "ratio", worst)
	return nil
}

// percentDropped returns the mean of the requests dropped or late, in percent.
func percentDropped(list []outcome) float64 {
	return meanOf(list, func(o *outcome) float64 { return 100 * o.dropRate() })
}
