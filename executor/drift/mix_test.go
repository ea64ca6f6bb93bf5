package drift

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/formats"
	"inferplan/policy"
)

func mixOf(windows int) *MixDrift {
	plan := &formats.Plan{Inputs: []formats.Input{{Role: "profile", Path: "p.json"}, {Role: "workload", Path: "w.yaml"}}}
	tables := &policy.Tables{Models: []policy.Model{{Name: "a", RPS: 100}, {Name: "b", RPS: 100}}}
	return NewMixDrift(plan, tables, Limit{Distance: .1, Windows: windows}, prometheus.NewRegistry())
}

func TestMixNoticeNamesCommand(t *testing.T) {
	m := mixOf(20)
	var log bytes.Buffer
	to := slog.New(slog.NewTextHandler(&log, nil))
	arrived := make([]int64, 2)
	now := time.Duration(0)
	second := func(a, b int64) {
		now += time.Second
		arrived[0], arrived[1] = arrived[0]+a, arrived[1]+b
		m.Window(now, arrived, to)
	}
	for range 40 {
		second(100, 100)
		second(0, 0) // a silent second says nothing
	}
	if m.deviation.alarm.raised || m.deviation.totalVariation() > 1e-9 || log.Len() > 0 {
		t.Fatalf("the planned mix: distance %g, log %s", m.deviation.totalVariation(), log.String())
	}
	n := 0
	for ; !m.deviation.alarm.raised && n < 100; n++ {
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
	if m.deviation.alarm.raised || !strings.Contains(log.String(), "again the planned one") {
		t.Errorf("the mix came back: distance %g, shifted %v", m.deviation.totalVariation(), m.deviation.alarm.raised)
	}
}

// Poisson arrivals at the planned rates never look shifted, few as they may be.
func TestMixTakesChanceIntoAccount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for run := range 20 {
		m := mixOf(60)
		arrived := make([]int64, 2)
		for i := range 600 {
			for range rng.IntN(3) { // one a second
				arrived[rng.IntN(2)]++
			}
			if m.Window(time.Duration(i+1)*time.Second, arrived, slog.New(slog.DiscardHandler)); m.deviation.alarm.raised {
				t.Fatalf("run %d: shifted after %d seconds at distance %g, %v requests", run, i, m.deviation.totalVariation(), arrived)
			}
		}
	}
}
