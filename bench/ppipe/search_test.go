package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"inferplan/testkit/bundletest"
)

// Wherever a search starts, and whatever points are known, it ends where the
// whole grid shows it: at a point that attains, below one that does not.
func TestSearchAgainstGrid(t *testing.T) {
	data := strings.TrimSuffix(bundletest.Dir(t), "/ppipe")
	b := &bench{out: io.Discard, pictures: pictures{notes: io.Discard}, runs: 2, duration: time.Second}
	if err := b.open(data); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.store, err = openStore("", ""); err != nil {
		t.Fatal(err)
	}
	b.cases = "^maf19/G3/HC3/"
	scenes, err := b.scenes(".", b.recorded())
	if err != nil {
		t.Fatal(err)
	}
	processes, err := traces("").processes("poisson,gamma:2")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, p := range processes {
		for _, m := range []manner{asArtifact, asOurs} {
			for _, algorithm := range []string{"PPipe", "NP"} {
				s, err := b.subject(ctx, &scenes[0], algorithm, m.policy, m.network, p)
				if err != nil {
					t.Fatal(err)
				}
				for model := range s.near {
					passes := make([]bool, gridSteps+2)
					passes[0] = true
					for at := 1; at <= gridSteps; at++ {
						if passes[at], err = s.attains(ctx, model, at); err != nil {
							t.Fatal(err)
						}
					}
					for _, near := range []int{0, 1, 7, gridSteps} {
						for _, seen := range [][]int{nil, {3, 19}} {
							s.near[model], s.seen = near, seen
							got, err := s.highest(ctx, model)
							if err != nil {
								t.Fatal(err)
							}
							if !passes[got] || passes[got+1] {
								t.Errorf("%s, %s, %s, model %d from %d knowing %v: %d; by the grid %v", algorithm, m.policy, p.name, model, near, seen, got, passes)
							}
						}
					}
				}
			}
		}
	}
}
