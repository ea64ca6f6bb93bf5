package drift

import (
	"bytes"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/formats"
)

// gearPlan has gears for 0 to 100 and 100 to 200 rps, each for half of the time, which
// forward half of the samples.
func gearPlan() *formats.Plan {
	gear := func(from, to float64) formats.Gear {
		return formats.Gear{FromQPS: from, ToQPS: to, Weight: .5, Stages: []formats.GearStage{{Model: "small", Fraction: 1}, {Model: "large", Fraction: .5}}}
	}
	section := &formats.GearPlan{MaxQPS: 200, Weights: "uniform", Gears: []formats.Gear{gear(0, 100), gear(100, 200)}}
	return &formats.Plan{Kind: formats.PlanGear, Objective: formats.Objective{Name: "accuracy"}, Seed: 1, Section: section}
}

// Rates other than those planned for raise the metric and a notice with the
// command that plans anew.
func TestUnplannedRatesRaiseAlarm(t *testing.T) {
	var text bytes.Buffer
	p := gearPlan()
	p.Seed = 1
	p.Inputs = []formats.Input{{Role: "profile", Path: "p.json"}, {Role: "workload", Path: "w.yaml"}}
	log := slog.New(slog.NewTextHandler(&text, nil))
	d, now, sent := NewRateDrift(p, Limit{Distance: .25, Windows: 20}, "", prometheus.NewRegistry()), time.Duration(0), int64(0)
	windows := func(n int, rate int64) {
		for range n {
			now += time.Second
			sent += rate
			d.Window(now, sent, log)
		}
	}
	for range 10 { // as planned: half of the time in each range
		windows(1, 40)
		windows(1, 150)
	}
	if d.deviation.alarm.raised || d.deviation.totalVariation() > .1 || text.Len() > 0 {
		t.Fatalf("distance %v as planned; %s", d.deviation.totalVariation(), text.String())
	}
	windows(100, 0) // idle says nothing
	if d.deviation.totalVariation() > .1 {
		t.Errorf("distance %v after idling", d.deviation.totalVariation())
	}
	windows(40, 290)
	if got := text.String(); !d.deviation.alarm.raised || strings.Count(got, "\n") != 1 {
		t.Fatalf("after 40 s at 290 rps: distance %v, log %q", d.deviation.totalVariation(), got)
	}
	for _, want := range []string{"plan solve --method gear --profile p.json --workload w.yaml -o plan.json", "max: 300", "histogram: [0.0", "SIGHUP", "in w.yaml"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the notice lacks %q: %s", want, text.String())
		}
	}
	for range 60 {
		windows(1, 40)
		windows(1, 150)
	}
	if d.deviation.alarm.raised {
		t.Errorf("distance %v: still drifted after two minutes as planned", d.deviation.totalVariation())
	}
}

// Samples of the hard half raise the alarm within a minute, those that the plan was made
// for do not, at low rates too.
func TestHarderSamplesRaiseAlarm(t *testing.T) {
	for _, rate := range []int64{20, 150} {
		var text bytes.Buffer
		f := NewForwardDrift(gearPlan(), []string{"small", "large"}, Limit{Distance: .1, Windows: 30}, prometheus.NewRegistry())
		answers := [][]int64{{0, 0}, {0, 0}}
		rng, log := rand.New(rand.NewPCG(1, 1)), slog.New(slog.NewTextHandler(&text, nil))
		second := func(large float64) {
			for range rate {
				gear, by := rng.IntN(2), 0
				if rng.Float64() < large {
					by = 1
				}
				answers[gear][by]++
			}
			f.Window(answers, log)
		}
		for range 300 {
			second(.5) // of the plan: half of the samples go on
		}
		if f.deviation.alarm.raised || text.Len() > 0 {
			t.Fatalf("%d rps as planned: distance %v, %s", rate, f.deviation.totalVariation(), &text)
		}
		took := 0
		for !f.deviation.alarm.raised && took < 200 {
			second(.9)
			took++
		}
		if took > 60 || !strings.Contains(text.String(), "plan profile --records") {
			t.Errorf("%d rps: the alarm after %d s at a distance of %v: %s", rate, took, f.deviation.totalVariation(), &text)
		}
		if got := f.forwarded[0][0] / f.arrivals[0][0]; math.Abs(got-.5) > 1e-9 {
			t.Errorf("%v of the samples forwarded as planned, expected .5", got)
		}
		for range 120 {
			second(.5)
		}
		if f.deviation.alarm.raised {
			t.Errorf("%d rps: still drifted after two minutes as planned", rate)
		}
	}
}

// Weights of measured rates are of the gears in force; drift, which sees rates,
// is held against the shares of the rates.
func TestDriftOfMeasuredRates(t *testing.T) {
	p := gearPlan()
	formats.GearOf(p).Weights = "measured"
	for i, share := range []float64{.4, .6} { // 80 and 120 rps in turn
		formats.GearOf(p).Gears[i].Weight, formats.GearOf(p).Gears[i].RateShare = []float64{.02, .98}[i], share
	}
	d, sent := NewRateDrift(p, Limit{Distance: .25, Windows: 20}, "", prometheus.NewRegistry()), int64(0)
	for i := range 60 {
		sent += []int64{80, 120}[i%2]
		d.Window(time.Duration(i+1)*time.Second, sent, slog.New(slog.DiscardHandler))
	}
	if d.deviation.alarm.raised || d.deviation.totalVariation() > .05 {
		t.Errorf("distance %v at the rates that were measured", d.deviation.totalVariation())
	}
}
