package main

import (
	"strings"
	"testing"

	"inferplan/bench/gear/published"
)

// A tenth of the plans of table thirds, at rates made up here: with samples held out none that is
// near its SLO misses it on a third part, without them some do.
func TestThirds(t *testing.T) {
	f := published.Llama4()
	for i := range 60 {
		f.Rates = append(f.Rates, f.Peak*float64(i+1)/60)
	}
	var with, without missed
	for _, c := range []struct {
		draw    uint64
		devices int
	}{{0, 3}, {0, 5}, {0, 8}, {1, 3}, {1, 4}, {1, 5}} {
		v, err := judgedOn(t.Context(), f, "", c.draw, c.devices, true)
		if err != nil {
			t.Fatal(err)
		}
		if with.add(v); c.devices == 3 {
			if v, err = judgedOn(t.Context(), f, "", c.draw, c.devices, false); err != nil {
				t.Fatal(err)
			}
			without.add(v)
		}
	}
	t.Logf("with samples held out %+v, without %+v", with, without)
	if with.near < 5 || with.missed > 0 || without.missed == 0 {
		t.Errorf("with samples held out %+v, without %+v", with, without)
	}
	j := judgedPlans{with: missed{60, 40, 2}, without: missed{60, 45, 9}}
	if g := j.figure(3); g.Measured != 5 || g.Holds != "yes" || !strings.HasPrefix(g.Note, "2 of 40 plans, on 3 draws of samples; without samples held out 9 of 45") {
		t.Errorf("figure %+v", g)
	}
}
