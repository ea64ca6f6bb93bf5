package executor

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/formats"
)

func mixOf(t *testing.T, windows int) *mix {
	plan := pooledPlan(time.Millisecond, 1, time.Second) // 100 rps each
	plan.Inputs = []formats.Input{{Role: "profile", Path: "p.json"}, {Role: "workload", Path: "w.yaml"}}
	return newMix(plan, compiled(t, plan), &Options{MixLimit: 0.1, MixWindows: windows}, prometheus.NewRegistry())
}

func TestMixNotice(t *testing.T) {
	m := mixOf(t, 20)
	var log bytes.Buffer
	to := slog.New(slog.NewTextHandler(&log, nil))
	arrived := make([]int64, 2)
	now := time.Duration(0)
	second := func(a, b int64) {
		now += time.Second
		arrived[0], arrived[1] = arrived[0]+a, arrived[1]+b
		m.window(now, arrived, to)
	}
	for range 40 {
		second(100, 100)
		second(0, 0) // a silent second says nothing
	}
	if m.drifted || m.now > 1e-9 || log.Len() > 0 {
		t.Fatalf("the planned mix: distance %g, log %s", m.now, log.String())
	}
	n := 0
	for ; !m.drifted && n < 100; n++ {
		second(180, 20)
	}
	text := log.String()
	if n < 3 || n > 20 || !strings.Contains(text, "plan solve --profile p.json --workload w.yaml -o plan.json") || !strings.Contains(text, "planned 0.500") {
		t.Errorf("after %d seconds: %s", n, text)
	}
	for range 10 {
		second(180, 20)
	}
	if strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("the notice was not given once: %s", log.String())
	}
	for range 200 {
		second(100, 100)
	}
	if m.drifted || !strings.Contains(log.String(), "again the planned one") {
		t.Errorf("the mix came back: distance %g, shifted %v", m.now, m.drifted)
	}
}

// Poisson arrivals at the planned rates never look shifted, few as they may be.
func TestMixTakesChanceIntoAccount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for run := range 20 {
		m := mixOf(t, 60)
		arrived := make([]int64, 2)
		for i := range 600 {
			for range rng.IntN(3) { // one a second
				arrived[rng.IntN(2)]++
			}
			if m.window(time.Duration(i+1)*time.Second, arrived, quiet()); m.drifted {
				t.Fatalf("run %d: shifted after %d seconds at distance %g, %v requests", run, i, m.now, arrived)
			}
		}
	}
}

func TestMixIsMeasuredWhileServing(t *testing.T) {
	o := replayOptions(true)
	o.MixWindows = 2
	var mu sync.Mutex
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))
	x := open(t, pooledPlan(time.Millisecond, 1, patient), o)
	during(x, 0, 1, 100, func() { // nothing for the other model
		until(func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(log.String(), "the mix of models is not the planned one")
		})
	})
	mu.Lock()
	defer mu.Unlock()
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Gauge != nil {
				found[f.GetName()] += m.Gauge.GetValue()
			}
		}
	}
	if found[prefix+"replan_due"] != 1 || found[prefix+"mix_distance"] < 0.4 || found[prefix+"arrival_rps"] <= 0 || found[prefix+"planned_rps"] != 200 {
		t.Errorf("series %v", found)
	}
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
