package main

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"inferplan/bench/figures"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
)

// forked is the diamond da with one way per request: face or pose (PARD §5.2,
// where DAGs are). first is the share that goes the first way.
func forked(da *pipeline, first float64) *pipeline {
	out := &pipeline{name: "db", slo: da.slo, stages: slices.Clone(da.stages)}
	s := out.stages
	s[0].ways = []formats.Branch{{Targets: []string{s[1].name}, Probability: first}, {Targets: []string{s[2].name}, Probability: 1 - first}}
	s[1].share, s[2].share = first, 1-first
	return out
}

// skipping is a chain of which a request passes over the third module or not: the
// ways differ by all that waits there.
func skipping(da *pipeline, takes float64) *pipeline {
	out := &pipeline{name: "ds", slo: da.slo, stages: slices.Delete(slices.Clone(da.stages), 1, 2)}
	s := out.stages
	s[0].ways = []formats.Branch{{Targets: []string{s[1].name}, Probability: takes}, {Targets: []string{s[2].name}, Probability: 1 - takes}}
	s[1].share, s[2].after = takes, []string{s[0].name, s[1].name}
	return out
}

// forks adds the cells of a trace of pipelines whose requests take one of two ways.
func (b *bench) forks(t *trace, add func(name, trace string, j *job, policies ...string)) {
	for _, c := range []struct {
		name string
		pipe *pipeline
		late bool
	}{{"db", forked(b.pipe("da"), .5), false}, {"ds", skipping(b.pipe("da"), .1), false}, {"ds-late", skipping(b.pipe("da"), .1), true}} {
		add("paths/"+c.name+"-"+t.name, t.name, b.job(c.pipe, t, c.late), "pard", "feas"+longestWay, "feas"+seenWays)
		add("paths/"+c.name+"-"+t.name, t.name, b.job(told(c.pipe), t, c.late), "pard"+knownWays, "feas"+knownWays)
	}
}

// told is a forked pipeline whose ways are known when requests come: an application
// for each.
func told(p *pipeline) *pipeline {
	out := *p
	out.known = true
	return &out
}

// byWay makes an application of every way behind the first module. All other
// modules are part of those that come to them.
func byWay(app *formats.FlowApplication) []formats.FlowApplication {
	var out []formats.FlowApplication
	for _, way := range app.Modules[0].Branches {
		one := *app
		one.Model, one.RPS, one.Modules = app.Model+"-"+way.Targets[0], way.Probability*app.RPS, nil
		var has []string
		for _, m := range app.Modules {
			m.Branches = nil
			after := slices.DeleteFunc(slices.Clone(m.Predecessors), func(name string) bool { return !slices.Contains(has, name) })
			if !slices.Contains(way.Targets, m.Name) {
				other := slices.ContainsFunc(app.Modules[0].Branches, func(b formats.Branch) bool { return slices.Contains(b.Targets, m.Name) })
				if other { // what comes from the first module goes the other way
					after = slices.DeleteFunc(after, func(name string) bool { return name == app.Modules[0].Name })
				}
			}
			if len(m.Predecessors) > 0 && len(after) == 0 {
				continue
			}
			m.Predecessors = after
			has, one.Modules = append(has, m.Name), append(one.Modules, m)
		}
		out = append(out, one)
	}
	return out
}

// forks is a source whose requests are of the application of the way that they
// take, and the truth of a plan in which that is not known. Both draw the same
// ways with the same seed.
type forks struct {
	arrivals.Source
	first float64
	known bool
	rng   *rand.Rand
	drawn []int32 // by request slot
}

func newForks(src arrivals.Source, p *pipeline, seed uint64) *forks {
	return &forks{Source: src, first: p.stages[0].ways[0].Probability, known: p.known, rng: seeded.New(seed, "bench-pard/ways")}
}

func (f *forks) way() int32 {
	if f.rng.Float64() < f.first {
		return 0
	}
	return 1
}

// Next implements arrivals.Source.
func (f *forks) Next(r *arrivals.Request) bool {
	ok := f.Source.Next(r)
	if ok && f.known {
		r.Model = f.way()
	}
	return ok
}

// Arrive implements sim.Truth.
func (f *forks) Arrive(req int32, _ *arrivals.Request) {
	for int(req) >= len(f.drawn) {
		f.drawn = append(f.drawn, 0)
	}
	if !f.known {
		f.drawn[req] = f.way()
	}
}

// Outcome implements sim.Truth: what is behind the first module is no branch, and
// takes way 0 whatever is drawn.
func (f *forks) Outcome(req, _, _ int32) (policy.Outcome, int64) {
	return policy.Outcome{Branch: f.drawn[req]}, 0
}

// Tokens implements sim.Truth: there are none.
func (f *forks) Tokens(int32) int32 { return 0 }

// suffixes of policies in cells.
const (
	knownWays  = "@known"      // the way of a request is known when it comes
	seenWays   = "+paths=0.25" // ways that fewer took so far are left out
	longestWay = "+paths=0"    // the longest way counts for every request
)

// rises says how much more is dropped where ways are not known: with the longest
// way taken for every request (PARD), and under feas with the predictor of ways.
func rises(s *sheet) {
	longest := riseOf(s, "pard", "")
	for _, name := range slices.Sorted(maps.Keys(longest)) {
		if strings.HasPrefix(name, "paths/db-") {
			s.add(figures.Figure{Claim: "paths: " + strings.TrimPrefix(name, "paths/") + ", one of da's two branches, evenly: points of requests more that pard drops where ways are not known", Source: "PARD §5.2: drop rates .05, .21 and .10 higher on its three traces",
				Asked: figures.AskedShown, Measured: longest[name], Unit: "points"})
		}
	}
	meanRise(s, "pard", longest)
	meanRise(s, "feas", riseOf(s, "feas", longestWay))
	seen := riseOf(s, "feas", seenWays)
	if len(seen) == 0 {
		return
	}
	left, _ := mean(values(seen), value)
	s.add(figures.Figure{Claim: "paths: the same of feas with the predictor of ways", Source: "PARD §5.2, future work", Asked: figures.AskedShown, Measured: left, Unit: "points"})
}

// riseOf returns, by case, how much more a policy drops with a suffix than where ways are known,
// in points of the requests.
func riseOf(s *sheet, policy, suffix string) map[string]float64 {
	rises := map[string]float64{}
	for _, name := range s.of("paths") {
		known, unknown := s.cellsOf(name, policy+knownWays), s.cellsOf(name, policy+suffix)
		if len(known) == 0 || len(known) != len(unknown) {
			continue
		}
		k, _ := mean(known, (*outcome).drop)
		u, _ := mean(unknown, (*outcome).drop)
		rises[name] = 100 * (u - k)
	}
	return rises
}

// meanRise adds the mean rise of a policy over the cases.
func meanRise(s *sheet, policy string, rises map[string]float64) {
	if len(rises) == 0 {
		return
	}
	rise, half := mean(values(rises), value)
	s.add(figures.Figure{Claim: "paths: points of requests more that " + policy + " drops where ways are not known and the longest counts, mean of the cases", Source: "PARD §5.2: drop rates .05, .21 and .10 higher on its three traces",
		Asked: figures.AskedShown, Measured: rise, Interval: &[2]float64{rise - half, rise + half}, Unit: "points"})
}

func values(rises map[string]float64) (out []outcome) {
	for _, name := range slices.Sorted(maps.Keys(rises)) {
		out = append(out, outcome{Value: rises[name]})
	}
	return out
}

func value(o *outcome) float64 { return o.Value }
