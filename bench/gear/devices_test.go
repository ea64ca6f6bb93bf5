package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"inferplan/bench/figures"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/planner/gear/cascades"
	policygear "inferplan/policy/gear"
)

// A plan that needs more devices than any baseline loses a cell, whoever of both needs more than were tried; what a baseline needs as many
// of is no loss.
func TestNeverMore(t *testing.T) {
	c := newContest(&published.Family{Name: "llama4"}, ", even arrivals", 0, nil)
	c.targets = []float64{.61, .64, .66, .67}
	c.least = map[string][]float64{"planner": {2, 5, 0, 0}, "planner, all requests": {2, 4, 0, 16}, "Cascadia-like": {2, 4, 0, 16}, "Cascadia-like, re-deployed": {3, 4, 0, 0},
		"MS+": {4, 10, 0, 0}, "DynBa": {0, 9, 0, 0}, "Cocktail+": {4.75, 4.75, 0, 0}}
	shown := &instrument.Table{}
	list, err := inRun(t.Context(), t.TempDir(), func(r *instrument.Run, _ *instrument.Table) error {
		c.fill(shown)
		c.stateFewer(r)
		c.stateNeverMore(r)
		return nil
	})
	if err != nil || len(list) != 4 {
		t.Fatalf("%v, figures %+v", err, list)
	}
	for i, want := range []figures.Figure{
		{Claim: "devices of llama4 at accuracy 0.61, even arrivals: times fewer than the better of MS+ and DynBa", Measured: 2, Holds: figures.Yes, Note: "planner 2, MS+ 4, DynBa >16, Cocktail+ 4.75"},
		{Claim: "devices of llama4 at accuracy 0.64, even arrivals: times fewer than the better of MS+ and DynBa", Measured: 1.8, Holds: figures.Partly, Note: "planner 5, MS+ 10, DynBa 9, Cocktail+ 4.75"},
		{Claim: "llama4, even arrivals, planner: accuracies of 4 for which a baseline needs fewer devices", Measured: 2, Holds: figures.No,
			Note: "0.64: 5 against Cascadia-like 4, Cascadia-like, re-deployed 4, Cocktail+ 4.75; 0.67: 0 against Cascadia-like 16"},
		{Claim: "llama4, even arrivals, planner, all requests: accuracies of 4 for which a baseline needs fewer devices", Measured: 0, Holds: figures.Yes, Note: "none"},
	} {
		if f := list[i]; f.Claim != want.Claim || f.Measured != want.Measured || f.Holds != want.Holds || f.Note != want.Note {
			t.Errorf("found %+v, expected %+v", f, want)
		}
	}
	if row := strings.Join(shown.Rows[1], "|"); row != "llama4|even arrivals|0.64|5|4|||4|4|10||9|4.75|1.80|2.25" {
		t.Errorf("row %s", row)
	}
}

// Fronts and runs that are kept are not made again, and lead to the same plan. Where one device holds all models, levels have no
// deployments of their own.
func TestCascadiaIsKept(t *testing.T) {
	f := published.BERT5().Only("tiny", "small")
	f.Grid = 4
	for i := range 20 {
		f.Rates = append(f.Rates, 500+2000*math.Exp(-math.Pow(float64(i-10)/3, 2)))
	}
	folder := t.TempDir()
	build := func(name string) (out *plan, results string) {
		_, err := inRun(context.Background(), folder, func(r *instrument.Run, _ *instrument.Table) (err error) {
			out, err = methodsByName[name](r, place{f, 1, f.SLO}, evenAlone)
			return err
		})
		text, readErr := os.ReadFile(filepath.Join(folder, "results.jsonl"))
		if err != nil || readErr != nil || out == nil {
			t.Fatalf("%+v, %v, %v", out, err, readErr)
		}
		return out, string(text)
	}
	first, kept := build("Cascadia-like")
	want, err := first.tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Cascadia-like", "Cascadia-like, re-deployed"} {
		again, results := build(name)
		if found, err := again.tables(); err != nil || results != kept || again.name != first.name || !reflect.DeepEqual(found, want) {
			t.Errorf("%s again: %s, %v, expected %s", name, again.name, err, first.name)
		}
	}
	if strings.Contains(kept, `/even","cpu_s":0,"value":null`) || !strings.Contains(kept, "/1/400ms/Cascadia/front") {
		t.Errorf("results %s", kept)
	}
}

// Held out, pipelines get the answers of their models, also if a model has no pipeline.
func TestHeldOutRecords(t *testing.T) {
	answers := func(n ...uint8) *cascades.Samples {
		return &cascades.Samples{N: 2, Levels: [][]uint8{{n[0], 0}, {n[1], 0}, {n[2], 0}}, Correct: [][]bool{{n[0] > 4, false}, {true, true}, {false, n[2] > 4}}}
	}
	q := &cascades.Problem{PlanningSamples: answers(5, 6, 7), HeldOutSamples: answers(7, 8, 9)}
	planned := &policygear.SampleRecords{Samples: 2, Levels: [][]uint8{{6, 0}, {7, 0}}, Correct: [][]bool{{true, true}, {false, true}}}
	got, err := heldOutRecords(q, planned)
	want := policygear.SampleRecords{Samples: 2, Levels: q.HeldOutSamples.Levels[1:], Correct: q.HeldOutSamples.Correct[1:]}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, expected %+v", got, err, want)
	}
	planned.Correct[1] = []bool{false, false}
	if _, err := heldOutRecords(q, planned); err == nil {
		t.Error("answers of no model: no error")
	}
}
