package main

import (
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"inferplan/bench/instrument"
)

// steady is a trace of ten functions whose rates do not change.
func steady() trace {
	var t trace
	for i := range 10 {
		t = append(t, slices.Repeat([]float64{float64(i + 1)}, minutes))
	}
	return t
}

// Arrivals have the rates that are asked for, and shift doubles the first application and halves the others from the middle on.
func TestRequests(t *testing.T) {
	counts := [2][3]float64{}
	for _, q := range steady().requests(rates{rps: [3]float64{1, 1, 1}, shift: true}, minutes*time.Minute, 1) {
		counts[int(q.ArrivedAt/(minutes*time.Minute/2))][q.Model]++
	}
	const half = minutes / 2 * 60 // seconds
	for k, want := range [2][3]float64{{half, half, half}, {2 * half, half / 2, half / 2}} {
		for m := range want {
			if got := counts[k][m]; math.Abs(got-want[m]) > 5*math.Sqrt(want[m]) {
				t.Errorf("application %d in half %d: %.0f requests, want about %.0f", m, k, got, want[m])
			}
		}
	}
}

// Outcomes of a grid stand at their scenes, policies and seeds, are the same when they are measured again, and a static fleet takes what the early policy held.
func TestMeasureGrid(t *testing.T) {
	b := &bench{trace: steady(), seeds: []uint64{1, 2}}
	scenes, policies := []*scene{sceneOf(0, 1, 4, 40), sceneOf(-1, 2, 4, 40)}, []string{"static", "dyorc-early", "greedy"}
	for _, sc := range scenes {
		sc.Minutes, sc.Warmup = 2, 30*time.Second
	}
	in := &instrument.Instrument{Name: "dyorc", Keeps: true, Parts: []instrument.Part{{Name: "rows", Measure: func(r *instrument.Run, _ *instrument.Table) error {
		g, err := b.measureGrid(r, scenes, policies, false)
		if err != nil {
			return err
		}
		for s, sc := range scenes {
			for p, policy := range policies {
				for k, seed := range b.seeds {
					again, err := b.run(r.Ctx, r, sc, policy, seed, false)
					if err != nil {
						return err
					}
					if got := g[s][p][k]; got.Mean != again.Mean || got.P99 < got.Mean || got.Mean < .9*got.Bound || (got.Resident != nil) != (policy == "dyorc-early") {
						t.Errorf("%s under %s, seed %d: %+v, then %+v", sc.Name, policy, seed, got, again)
					}
				}
			}
		}
		return nil
	}}}}
	if err := in.Run(t.Context(), []string{"-keep", t.TempDir()}, io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}
