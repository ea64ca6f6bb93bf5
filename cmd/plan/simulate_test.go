package main

import (
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/sim"
)

// Rates of millions a second are simulated for fewer virtual seconds, which is said; a
// duration that was given stays, and so do ordinary rates.
func TestFewerSecondsAtHighRates(t *testing.T) {
	for _, c := range []struct {
		name           string
		rps            float64
		o              simulateOptions
		duration       time.Duration
		shortened, few bool
	}{
		{"ordinary", 1000, simulateOptions{runCount: 1}, 30 * time.Second, false, false},
		{"a million", 1e6, simulateOptions{runCount: 1}, 5 * time.Second, true, false},
		{"in five runs", 1e6, simulateOptions{runCount: 5}, time.Second, true, true},
		{"at several loads", 1e6, simulateOptions{runCount: 1, loads: "0.5,1,1"}, 2 * time.Second, true, false},
		{"a search", 1e6, simulateOptions{runCount: 1, findMaxLoad: true}, 625 * time.Millisecond, true, true},
		{"of workflows", 1e6, simulateOptions{runCount: 1, meetsAll: true}, 17321 * time.Microsecond, true, true},
		{"ordinary ones of workflows", 1000, simulateOptions{runCount: 1, meetsAll: true}, 30 * time.Second, false, false},
		{"a billion", 1e9, simulateOptions{runCount: 1}, 5 * time.Millisecond, true, true},
	} {
		c.o.load = 1
		sc := &sim.Scenario{Duration: 30 * time.Second, Tables: &policy.Tables{Models: []policy.Model{{Name: "a", RPS: c.rps / 2, SLO: 150 * time.Millisecond}, {Name: "b", RPS: c.rps / 2, SLO: time.Millisecond}}}}
		said := c.o.shortenDuration(sc)
		if sc.Duration != c.duration || (len(said) > 0) != c.shortened {
			t.Errorf("%s: %v, %q, expected %v", c.name, sc.Duration, said, c.duration)
		}
		if c.shortened && (len(said[0]) > 90) != c.few {
			t.Errorf("%s: %q", c.name, said)
		}
	}
}

// Longer runs are simulated beside ordinary ones; beside those that take seconds they are not,
// by events or by what a policy looks at.
func TestLongerRunsAreBounded(t *testing.T) {
	report := func(requests int64, rps float64, mean time.Duration, events int64) *formats.Report {
		m := formats.ModelReport{OfferedRPS: rps}
		m.Requests = requests
		m.Latency.MeanUS = document.Micros(mean)
		return &formats.Report{Models: []formats.ModelReport{m}, Events: events}
	}
	for _, c := range []struct {
		name     string
		rep      *formats.Report
		meetsAll bool
		without  bool
	}{
		{"ordinary", report(300_000, 10_000, 50*time.Millisecond, 1e6), false, false},
		{"many events", report(5e6, 1e6, 50*time.Millisecond, 1e7), false, true},
		{"workflows", report(3000, 100, time.Second, 20_000), true, false},
		{"many workflows open", report(16_273, 542, 958*time.Millisecond, 66_000), true, true},
		{"a short run of them", report(1000, 542, time.Hour, 4000), true, false},
	} {
		o := simulateOptions{meetsAll: c.meetsAll}
		if why := o.whyNotLengthened(c.rep); (why != "") != c.without {
			t.Errorf("%s: %q", c.name, why)
		}
	}
}
