package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
)

// A plan that needs more devices than any baseline loses a cell, whoever of both needs
// more than were tried; what a baseline needs as many of is no loss.
func TestNeverMore(t *testing.T) {
	b := &bench{flags: new(flag.FlagSet)}
	f := &published.Family{Name: "llama4"}
	b.neverMore("llama4, even arrivals", "gpus", f, []cell{
		{"0.61", [2]int{2, 2}, append(rivals(2, 3, 4, 0), rival{"Cocktail+", 4.75})},
		{"0.64", [2]int{5, 4}, append(rivals(4, 4, 10, 9), rival{"Cocktail+", 4.75})},
		{"0.66", [2]int{0, 0}, append(rivals(0, 0, 0, 0), rival{"Cocktail+", 0})},
	})
	if len(b.figures) != 2 {
		t.Fatalf("%d figures, expected one for each plan", len(b.figures))
	}
	ranges, all := b.figures[0], b.figures[1]
	if ranges.Measured != 1 || ranges.Holds != figures.No || ranges.Note != "0.64: 5 against Cascadia-like 4, Cascadia-like, re-deployed 4, Cocktail+ 4.75" {
		t.Errorf("planner: %+v", ranges)
	}
	if all.Measured != 0 || all.Holds != figures.Yes || all.Note != "none" || !strings.Contains(all.Claim, "of 3 for which") || !strings.Contains(all.Command, "-tables gpus -families llama4") {
		t.Errorf("all requests: %+v", all)
	}
	none := cell{"1", [2]int{0, 0}, rivals(16, 0, 0, 0)}
	if by := none.below(0); !reflect.DeepEqual(by, []string{"Cascadia-like 16"}) {
		t.Errorf("a plan that is not to be had: %v", by)
	}
}

// Fronts and runs that are kept are not made again, and lead to the same plan. Where one
// device holds all models, levels have no deployments of their own.
func TestCascadiaIsKept(t *testing.T) {
	f := published.BERT5().Only("tiny", "small")
	f.Grid = 4
	for i := range 20 {
		f.Rates = append(f.Rates, 500+2000*math.Exp(-math.Pow(float64(i-10)/3, 2)))
	}
	kept := &store{values: map[string]json.RawMessage{}}
	tune := func(ctx context.Context, redeployed bool) *baseline.Tuned {
		b := &runs{ctx: ctx, store: kept, progress: &progress{out: io.Discard}}
		v, err := b.tuned(place{f, 1, f.SLO}, []stream{even}, cascadia(redeployed))
		if err != nil || v == nil {
			t.Fatalf("%+v, %v", v, err)
		}
		return v
	}
	first, n := tune(context.Background(), false), len(kept.values)
	over, cancel := context.WithCancel(context.Background())
	cancel() // whatever is made now fails
	for _, redeployed := range []bool{false, true} {
		if again := tune(over, redeployed); len(kept.values) != n || again.Name != first.Name || !reflect.DeepEqual(again.Run, first.Run) {
			t.Errorf("again (re-deployed: %v): %s %+v, expected %s %+v", redeployed, again.Name, again.Run, first.Name, first.Run)
		}
	}
	if first.Run.P95 > f.SLO || first.Run.Accuracy < .88 {
		t.Errorf("%s: %+v", first.Name, first.Run)
	}
}
