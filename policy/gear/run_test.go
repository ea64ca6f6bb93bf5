package gear_test

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/gear"
	"inferplan/sim"
)

func simulate(t testing.TB, tab *policy.Tables, pol policy.Policy, rate float64, length time.Duration, faults ...sim.Fault) *sim.Result {
	return runChains(t, tab, pol, rate, length, faults)
}

func runChains(t interface{ Fatal(...any) }, tab *policy.Tables, pol policy.Policy, rate float64, length time.Duration, faults []sim.Fault) *sim.Result {
	src, err := arrivals.Process(&formats.Arrivals{Process: "poisson"}, seeded.New(5, "test"), 0, rate, length)
	if err != nil {
		t.Fatal(err)
	}
	res, err := sim.Run(context.Background(), sim.Config{Tables: tab, Policy: pol, Source: src, Duration: length, Faults: faults, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Losing a device, or both for a while, loses no request that can be answered,
// and a recorded run replays to the same bytes.
func TestFaultsAndReplay(t *testing.T) {
	tab := gear.TwoModels()
	pol, err := gear.New(tab, gear.OptionsWithoutRefusals(tab))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	rec := conform.NewRecorder(pol, &log)
	res := simulate(t, tab, rec, 120, 20*time.Second, sim.Fault{At: 3 * time.Second, Device: 0}, sim.Fault{At: 6 * time.Second, Device: 1},
		sim.Fault{At: 6500 * time.Millisecond, Device: 1, ComesBack: true}, sim.Fault{At: 9 * time.Second, Device: 0, ComesBack: true})
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	m := res.Report.Models[0]
	if m.Requests != m.Completed+m.Dropped || m.Dropped < 20 || m.Dropped > 120 {
		t.Errorf("%d requests, %d answered, %d dropped; expected those of the half second without a device", m.Requests, m.Completed, m.Dropped)
	}
	again, err := gear.New(tab, gear.OptionsWithoutRefusals(tab))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conform.Replay(&log, again); err != nil || n == 0 {
		t.Errorf("replay of %d calls: %v", n, err)
	}
}

// What gears answer right of all samples is what a run answers right, but for the luck of
// the samples that come.
func TestExpectedAccuracy(t *testing.T) {
	tab := gear.TwoModels()
	own := gear.TablesOf(tab)
	pol, err := gear.New(tab, gear.OptionsWithoutRefusals(tab))
	if err != nil {
		t.Fatal(err)
	}
	res := simulate(t, tab, pol, 110, 300*time.Second) // around the edge of the two gears
	of, under := own.GearAccuracies(), res.Gears.RequestsByGear
	want := (of[0]*float64(under[0]) + of[1]*float64(under[1])) / float64(res.Gears.Answered)
	t.Logf("%d and %d requests, gears %.4f: %.4f expected, %.4f shown", under[0], under[1], of, res.Gears.ExpectedAccuracy(own), res.Gears.Accuracy())
	if got := res.Gears.ExpectedAccuracy(own); under[0] < 1000 || under[1] < 1000 || math.Abs(got-want) > 1e-9 || math.Abs(got-res.Gears.Accuracy()) > .01 {
		t.Errorf("%v requests under gears of %v: %.4f, expected %.4f; the run shows %.4f", under, of, got, want, res.Gears.Accuracy())
	}
}

func BenchmarkRun(b *testing.B) {
	tab := gear.TwoModels()
	b.ReportAllocs()
	for range b.N {
		pol, err := gear.New(tab, gear.DefaultOptions(tab))
		if err != nil {
			b.Fatal(err)
		}
		res := simulate(b, tab, pol, 180, 30*time.Second)
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(res.Events), "ns/event")
	}
}
