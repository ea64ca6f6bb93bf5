package profiler

import (
	"path/filepath"
	"testing"
	"time"

	"inferplan/formats"
)

// A machine that is 4 % slower in every other run: the profile keeps the first run's
// numbers and tells how far the runs lie apart.
func TestRepeatTellsHowFarRunsLieApart(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 12, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath = 4, []int{1, 2}, filepath.Join(t.TempDir(), "profile.json")
	first := mustRun(t, o)
	if first.Devices[0].BetweenRuns != nil {
		t.Fatalf("one run tells %+v", first.Devices[0].BetweenRuns)
	}
	fast, runs := true, 0
	eng.noise = func(time.Time) float64 {
		if fast {
			return 1
		}
		return 1.04
	}
	o.OnEstimate = func(Estimate) error { // once a run that measures
		runs++
		fast = runs%2 == 1
		return nil
	}
	p, err := Repeat(t.Context(), o, 3) // the first is there already; one fast, one slow
	if err != nil {
		t.Fatal(err)
	}
	b := p.Devices[0].BetweenRuns
	// Logarithms 0, 0 and .0392 have a standard deviation of .0226.
	if runs != 2 || b == nil || b.Runs != 3 || b.Spread < 0.022 || b.Spread > 0.0235 {
		t.Errorf("%d runs, %+v, want a spread of .0226", runs, b)
	}
	read, err := formats.ReadProfile(o.OutPath)
	if err != nil {
		t.Fatal(err)
	}
	if read.Devices[0].BetweenRuns == nil || *read.Devices[0].BetweenRuns != *b {
		t.Errorf("the file tells %+v", read.Devices[0].BetweenRuns)
	}
	if was, now := first.Models[0].Measurements[0].WholeModel.WallUS, read.Models[0].Measurements[0].WholeModel.WallUS; was != now {
		t.Errorf("%v became %v: the first numbers stay", was, now)
	}
	// What is measured later keeps it.
	o.Batches, o.OnEstimate = []int{1, 2, 4}, nil
	if more := mustRun(t, o); more.Devices[0].BetweenRuns == nil {
		t.Error("a longer profile forgot it")
	}
}

// Checks of float16 take at most a quarter of a model's part of the budget, and one
// input at least.
func TestFloat16ChecksKeepToTheBudget(t *testing.T) {
	m := uniformModel("net", 10, time.Millisecond)
	for _, c := range []struct {
		budget time.Duration
		models int
		want   int
	}{{0, 1, 8}, {time.Hour, 1, 8}, {time.Second, 1, 4}, {time.Second, 2, 2}, {time.Millisecond, 1, 1}} {
		r := &runner{options: &Options{Budget: c.budget, Blocks: 10, FP16Samples: 8}}
		j := &modelJob{wholeTime: 10 * time.Millisecond}
		j.cut = &fakeBlocks{m: m, bounds: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}
		r.jobs = make([]*modelJob, c.models)
		if got := j.fp16Samples(r); got != c.want {
			t.Errorf("budget %v, %d models: %d inputs, want %d", c.budget, c.models, got, c.want)
		}
	}
}
