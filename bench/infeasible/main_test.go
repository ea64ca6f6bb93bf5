package main

import (
	"os"
	"testing"
)

// A small sample of what the command judges; INFERPLAN_LONG judges all of it.
func TestInfeasibility(t *testing.T) {
	o := &options{n: 12, workers: 2, first: 1, kind: "pool"}
	if os.Getenv("INFERPLAN_LONG") != "" {
		o.n, o.kind = 1000, ""
	}
	list := judged(t.Context(), o, nil, func(*result) {})
	if len(list) != o.n {
		t.Fatalf("%d instances were judged, of %d", len(list), o.n)
	}
	near := 0
	for _, r := range list {
		near += r.Near
		for _, w := range r.Wrong {
			t.Errorf("seed %d (%s): %s", r.Seed, r.Name, w)
		}
	}
	if near == 0 {
		t.Error("nothing was called nearest: the test is of no use")
	}
}
