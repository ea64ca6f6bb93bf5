package main

import (
	"testing"

	"inferplan/bench/gear/published"
)

// A tenth of the plans of part thirds, with fewer thresholds and at rates made up here: with samples held out none that is near its
// SLO misses it on a third part, without them some do.
func TestThirds(t *testing.T) {
	f := published.Llama4()
	f.Grid = 5
	for i := range 60 {
		f.Rates = append(f.Rates, f.Peak*float64(i+1)/60)
	}
	var with, without missed
	for _, c := range []struct {
		draw    uint64
		devices int
	}{{0, 3}, {0, 5}, {1, 3}} {
		v, err := judgeOnThird(t.Context(), "", c.draw, place{f, c.devices, f.SLO}, true)
		if err != nil {
			t.Fatal(err)
		}
		if with.add([]*judgedPlan{v}); c.devices == 3 {
			if v, err = judgeOnThird(t.Context(), "", c.draw, place{f, c.devices, f.SLO}, false); err != nil {
				t.Fatal(err)
			}
			without.add([]*judgedPlan{v})
		}
	}
	t.Logf("with samples held out %+v, without %+v", with, without)
	if with.near < 2 || with.missed > 0 || without.missed == 0 {
		t.Errorf("with samples held out %+v, without %+v", with, without)
	}
}
