package workflows_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"inferplan/bench/dyorc/baselines"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/testkit/workflows"
)

// poisson are arrivals of all applications at a rate each.
func poisson(rps float64, length time.Duration, seed uint64) arrivals.Source {
	var list []arrivals.Request
	rng := seeded.New(seed, "arrivals")
	for at := 0.0; ; {
		at += rng.ExpFloat64() / (3 * rps)
		when := time.Duration(at * 1e9)
		if when >= length {
			return arrivals.Slice(list)
		}
		list = append(list, arrivals.Request{ArrivedAt: when, Model: rng.Int32N(3), SLO: time.Minute})
	}
}

// run is a run of all applications under a policy; it gives the sum of latencies.
func run(t *testing.T, f workflows.Fleet, wrap func(policy.Policy) policy.Policy, name string, rps float64, faults ...sim.Fault) (requests int, sum time.Duration) {
	t.Helper()
	opt, err := baselines.Named(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	tab := f.Tables()
	var pol policy.Policy = workflow.New(tab, opt)
	if wrap != nil {
		pol = wrap(pol)
	}
	apps := workflows.NewApps(1)
	_, err = sim.Run(context.Background(), sim.Config{
		Tables: tab, Policy: pol, Source: poisson(rps, 3*time.Minute, 1), Verify: true, Faults: faults, NoReport: true,
		Control: &workflows.Control{Draw: apps.Draw}, MoveTime: workflows.Move(tab),
		OnCompleted: func(arrived, answered time.Duration) { requests++; sum += answered - arrived },
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return requests, sum
}

// lost are four devices that are lost and come back, but for one.
var lost = []sim.Fault{
	{At: 20 * time.Second, Device: 1}, {At: 40 * time.Second, Device: 1, ComesBack: true},
	{At: 50 * time.Second, Device: 0}, {At: 50 * time.Second, Device: 1}, {At: 50 * time.Second, Device: 2}, {At: 50 * time.Second, Device: 3},
	{At: 60 * time.Second, Device: 2, ComesBack: true}, {At: 61 * time.Second, Device: 0, ComesBack: true}, {At: 62 * time.Second, Device: 1, ComesBack: true},
}

// Every policy answers every request, with ample and with scarce memory, at every
// load, and while devices are lost and come back. The simulator's invariants hold:
// no slot of a task is in use at the end, no batch runs without its network.
func TestEveryPolicyAnswersAll(t *testing.T) {
	for _, name := range baselines.Names() {
		for _, gb := range []float64{17, 24, 40} {
			for _, rps := range []float64{.1, .6} {
				n, _ := run(t, workflows.Fleet{Devices: 4, Gigabytes: gb, PerNode: 2}, nil, name, rps)
				if want := int(3 * rps * 180); math.Abs(float64(n-want)) > 5*math.Sqrt(float64(want)) {
					t.Errorf("%s with %g GB: %d answers, expected about %d", name, gb, n, want)
				}
			}
			run(t, workflows.Fleet{Devices: 4, Gigabytes: gb, PerNode: 2}, nil, name, .3, lost...)
		}
	}
}

// On devices of two kinds, of which one is slower and runs only the small models, a
// batch takes what its kind takes; every request is answered, and both kinds
// work.
func TestKindsOfDevices(t *testing.T) {
	for _, name := range baselines.Names() {
		if name == "static" || name == "static-edf" {
			continue
		}
		f := workflows.Fleet{Devices: 6, Gigabytes: 24, PerNode: 2, Others: 3, Factor: 2.5, Small: true}
		var p *punctual
		busy := [2]time.Duration{}
		n, _ := run(t, f, func(inner policy.Policy) policy.Policy {
			p = &punctual{Policy: inner, ends: map[int32]time.Duration{}}
			return &kindWatch{punctual: p, tables: f.Tables(), busy: &busy}
		}, name, .2)
		if n < 80 || p.off > 10*time.Nanosecond {
			t.Errorf("%s: %d answers, batches up to %v from what was planned", name, n, p.off)
		}
		if busy[0] == 0 || busy[1] == 0 {
			t.Errorf("%s: device time %v by kind, expected both to work", name, busy)
		}
	}
}

// kindWatch adds up the device time of each kind of devices.
type kindWatch struct {
	*punctual
	tables *policy.Tables
	busy   *[2]time.Duration
}

func (k *kindWatch) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.BatchFinished {
		k.busy[k.tables.Devices[ev.Device].Kind] += ev.End - ev.Start
	}
	k.punctual.Handle(now, ev, out)
}

// A service without a home on a static fleet is loaded.
func TestStaticLoadsWhatHasNoHome(t *testing.T) {
	f := workflows.Fleet{Devices: 2, Gigabytes: 24, Resident: [][]int32{{workflows.OPT, workflows.ViT}, {workflows.LLM, workflows.SD}}}
	if n, _ := run(t, f, nil, "static", .2); n == 0 {
		t.Error("no request was answered")
	}
}

// The same seed gives the same run, and a recorded log replays to the same bytes.
func TestRunsAreReproducible(t *testing.T) {
	f := workflows.Fleet{Devices: 6, Gigabytes: 24, PerNode: 4}
	for _, name := range []string{"dyorc", "dyorc-early", "reactive"} {
		n, sum := run(t, f, nil, name, .8)
		var log bytes.Buffer
		var rec *conform.Recorder
		m, again := run(t, f, func(p policy.Policy) policy.Policy {
			rec = conform.NewRecorder(p, &log)
			return rec
		}, name, .8)
		if n != m || sum != again {
			t.Errorf("%s: %d requests in %v, then %d in %v", name, n, sum, m, again)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		opt, err := baselines.Named(name, 1)
		if err != nil {
			t.Fatal(err)
		}
		if calls, err := conform.Replay(&log, workflow.New(f.Tables(), opt)); err != nil || calls < 1000 {
			t.Errorf("%s: after %d calls: %v", name, calls, err)
		}
	}
}

// A request alone on a fleet that holds all takes its longest path and the
// transfers that it cannot avoid.
func TestUnloadedRequest(t *testing.T) {
	all := []int32{workflows.ViT, workflows.OPT, workflows.SD, workflows.LLM}
	tab := workflows.Fleet{Devices: 4, Gigabytes: 40, Resident: [][]int32{all, all, all, all}}.Tables()
	for _, model := range []int32{workflows.GILL, workflows.Debate} {
		apps, least := workflows.NewApps(3), []float64{}
		apps.Heard = func(_ int32, s, _ float64) { least = append(least, s) }
		var list []arrivals.Request
		for i := range 50 {
			list = append(list, arrivals.Request{ArrivedAt: time.Duration(i) * time.Minute, Model: model})
		}
		opt, _ := baselines.Named("dyorc", 1)
		i := 0
		_, err := sim.Run(context.Background(), sim.Config{
			Tables: tab, Policy: workflow.New(tab, opt), Source: arrivals.Slice(list), Verify: true, NoReport: true,
			Control: &workflows.Control{Draw: apps.Draw}, MoveTime: workflows.Move(tab),
			OnCompleted: func(arrived, answered time.Duration) {
				took := (answered - arrived).Seconds()
				if over := took - least[i]; over < -1e-6 || over > .0091 {
					t.Errorf("request %d of %s took %.4f s, at least %.4f", i, workflows.Names[model], took, least[i])
				}
				i++
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The applications are drawn with the chances that are written down.
func TestApps(t *testing.T) {
	apps := workflows.NewApps(5)
	var least, work [3]float64
	apps.Heard = func(m int32, l, w float64) { least[m] += l; work[m] += w }
	const n = 40_000
	for range n {
		for m := range int32(3) {
			var w workflows.Way
			apps.Draw(m, &w)
			if w.Len() > 16 {
				t.Fatalf("%d tasks", w.Len())
			}
		}
	}
	for m, want := range [3][2]float64{
		{.7*.012 + .6 + .9*2, .8*.012 + .6 + .95*2},
		{.25*1.65 + .9*(.7+.25*1.65) + 1.65, .25*1.65 + .9*(.7+.25*1.65) + 1.65},
		{1.63 * 1.65, 3 * 1.63 * 1.65},
	} {
		if l, w := least[m]/n, work[m]/n; math.Abs(l/want[0]-1) > .01 || math.Abs(w/want[1]-1) > .01 {
			t.Errorf("%s: path %.3f s and device time %.3f s, expected %.3f and %.3f", workflows.Names[m], l, w, want[0], want[1])
		}
	}
}

// On one busy device a task that reads others of the same device waits for no
// transfer, and works stretch batches.
func ExampleFleet_Tables() {
	t := workflows.Fleet{Devices: 2, Gigabytes: 40}.Tables()
	fmt.Println(t.Services[workflows.LLM].Name, t.Stages[workflows.LLM].Infer[15], len(t.Services))
	// Output: llama-2-7b 2.04s 30
}
