package executor

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/series"
)

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
	if found[series.Prefix+"replan_due"] != 1 || found[series.Prefix+"mix_distance"] < 0.4 || found[series.Prefix+"arrival_rps"] <= 0 || found[series.Prefix+"planned_rps"] != 200 {
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
