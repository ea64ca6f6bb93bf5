package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/sim"
)

// bench holds everything that the tables are made from.
type bench struct {
	from   profiles
	pipes  []*pipeline
	traces []*trace
	others []*trace
	held   []*trace // of the same origins as traces: on them the rules of "hours" are held against others
}

// notesRule is how workers come and go: every 5 s by the mean of the last 5 s,
// kept for 30 s, at most 64, with a cold start by module.
func notesRule(p *pipeline, late bool) *scaling {
	rule := &scaling{headroom: 1.1, workers: 64, every: 5 * time.Second, window: 5 * time.Second, hold: 30 * time.Second}
	for k := range p.stages {
		cold := 5.
		if late {
			cold += math.Round(4 * float64(k) / float64(len(p.stages)-1))
		}
		rule.cold = append(rule.cold, time.Duration(cold)*time.Second)
	}
	return rule
}

// loads of the stress test, over what 64 workers carry.
var loads = []float64{1, 1.1, 1.2, 1.5, 2}

// lateCases are those of S1: the cold start rises along the pipeline.
var lateCases = []string{"lv-tweet", "lv-azure", "da-tweet", "da-azure", "lv-wiki"}

// plain are the policies of the main tables.
var plain = []string{"naive", "nexus", "clipper++", "pard", "feas"}

// ablations are PARD with one part changed, and other readings of the baselines.
var ablations = []string{"back", "sf", "oc", "split", "wcl", "lower", "upper", "fcfs", "hbf", "lbf", "instant", "nexus-cum", "clip-te", "feas-hbf", "feas+token", "pard+samples=10000"}

// work is a cell to be measured.
type work struct {
	cell
	trace string
	job   *job
}

// cells lists what a part needs, with further policies.
func (b *bench) cells(part string, seed uint64, more []string) ([]work, error) {
	var out []work
	add := func(name, trace string, j *job, policies ...string) {
		for _, p := range append(policies, more...) {
			out = append(out, work{cell{Case: name, Policy: p, Seed: seed, outcome: outcome{}}, trace, j})
		}
	}
	switch part {
	case "S0", "ablations":
		for _, p := range b.pipes {
			for _, t := range b.traces {
				list := plain
				if part == "ablations" {
					list = ablations
				}
				add("S0/"+p.name+"-"+t.name, t.name, b.job(p, t, false), list...)
			}
		}
	case "S1":
		for _, name := range lateCases {
			for _, p := range b.pipes {
				for _, t := range b.traces {
					if p.name+"-"+t.name == name {
						add("S1/"+name, t.name, b.job(p, t, true), plain...)
					}
				}
			}
		}
	case "other":
		for _, p := range b.pipes {
			for _, t := range b.others {
				add("other/"+p.name+"-"+t.name, t.name, b.job(p, t, false), "nexus", "clipper++", "pard", "feas")
			}
		}
	case "stress":
		for _, p := range b.pipes {
			for _, l := range loads {
				rates := make([]float64, 60)
				for i := range rates {
					rates[i] = l * p.capacity(64)
				}
				start := p.want(.97*p.capacity(64), &scaling{headroom: 1, workers: 64})
				add(fmt.Sprintf("stress/%s-%.2f", p.name, l), "", &job{pipe: p, rates: rates, start: start}, append([]string{"feas+token"}, plain...)...)
			}
		}
	case "paths", "skew":
		for _, t := range b.traces {
			if part == "skew" {
				add("skew/lv-"+t.name, t.name, b.job(b.pipe("lv"), t, false), skews...)
			} else {
				b.forks(t, add)
			}
		}
	case "trouble":
		for _, p := range b.pipes {
			for _, t := range b.traces {
				if p.name+"-"+t.name != "lv-tweet" {
					continue
				}
				list := append([]string{"feas+token", "feas+learn=0"}, plain...)
				noisy, lost, late, later := b.job(p, t, false), b.job(p, t, false), b.job(p, t, false), b.job(p, t, false)
				noisy.noise, late.wrong, later.wrong = .1, 1.2, 1.5
				// A worker of the module with most of them, while the load is highest.
				lost.fault = []sim.Fault{{At: 1050 * time.Second, Device: 0}, {At: 1080 * time.Second, Device: 0, ComesBack: true}}
				add("trouble/lv-tweet-noise-0.1", t.name, noisy, list...)
				add("trouble/lv-tweet-worker-lost-30s", t.name, lost, list...)
				add("trouble/lv-tweet-profiles-wrong-1.2", t.name, late, list...)
				add("trouble/lv-tweet-profiles-wrong-1.5", t.name, later, list...)
			}
		}
	case "sensitivity":
		b.sensitivity(add)
	default:
		return nil, fmt.Errorf("the part %q is unknown, expected S0, S1, other, stress, trouble, paths, skew, ablations or sensitivity", part)
	}
	return out, nil
}

// pipe is a pipeline by its name.
func (b *bench) pipe(name string) *pipeline {
	return b.pipes[slices.IndexFunc(b.pipes, func(p *pipeline) bool { return p.name == name })]
}

// skews are how far clocks of workers are off where deadlines travel as times, in
// microseconds; as what is left of them they are not off at all.
var skews = []string{"pard", "pard+skew_us=1000", "pard+skew_us=5000", "pard+skew_us=20000", "feas", "feas+skew_us=1000", "feas+skew_us=5000", "feas+skew_us=20000"}

// What the paper varies (figure 14), on lv: the SLO, the quantile, the window.
var (
	slos      = []int{200, 300, 400, 500, 600} // ms
	quantiles = []string{".05", ".075", ".1", ".15", ".3", ".5"}
	windows   = []int{1, 3, 5, 7} // s
)

// sensitivity adds the cells of figure 14.
func (b *bench) sensitivity(add func(name, trace string, j *job, policies ...string)) {
	lv := b.pipe("lv")
	for _, t := range b.traces {
		for _, ms := range slos {
			at := *lv
			at.slo, at.stages = time.Duration(ms)*time.Millisecond, slices.Clone(lv.stages)
			if at.plan(.9) == nil && t.name == "tweet" {
				add(fmt.Sprintf("sensitivity/lv-%s-slo-%d", t.name, ms), t.name, b.job(&at, t, false), "nexus", "clipper++", "pard", "feas")
			}
		}
		var list []string
		for _, q := range quantiles {
			list = append(list, "pard+lambda="+q)
		}
		for _, s := range windows {
			list = append(list, fmt.Sprintf("pard+window_us=%d", s*1_000_000))
		}
		add("sensitivity/lv-"+t.name, t.name, b.job(lv, t, false), list...)
	}
}

func (b *bench) job(p *pipeline, t *trace, late bool) *job {
	rates, _ := t.scaled(p.capacity(64))
	return &job{pipe: p, rates: rates, rule: notesRule(p, late)}
}
