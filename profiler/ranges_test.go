package profiler

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

func measuredRanges(p *formats.Profile, batch int) [][2]int {
	var out [][2]int
	for _, r := range p.Models[0].FindMeasurement("cpu-1", 1, batch).Ranges {
		out = append(out, r.Blocks)
	}
	return out
}

// All ranges are measured in the rounds of the blocks; what is there already is not
// measured again, and what is missing is added to the numbers that are there.
func TestAllRanges(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 8, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath = 4, []int{1, 2}, filepath.Join(t.TempDir(), "profile.json")
	o.Ranges = Ranges{List: func(*formats.ProfileModel, string, int, int) [][2]int {
		return [][2]int{{1, 3}, {0, 2}, {0, 4}, {2, 3}, {1, 3}, {-1, 3}, {3, 9}} // the whole, a block and nonsense are passed over
	}}
	p := mustRun(t, o)
	if got, want := measuredRanges(p, 2), [][2]int{{0, 2}, {1, 3}}; !slices.Equal(got, want) {
		t.Fatalf("ranges %v, expected %v", got, want)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	first := p.Models[0].FindMeasurement("cpu-1", 1, 2)
	for _, r := range first.Ranges {
		if r.Latency.WallUS != document.Micros(800*time.Microsecond) || r.Latency.Samples < quickRule.MinRounds || r.Latency.CPUUS == 0 {
			t.Errorf("%v: %+v", r.Blocks, r.Latency)
		}
	}
	// Later the machine is slower: what is added is as of then.
	eng.clock.advance(time.Hour)
	eng.log, eng.noise = nil, func(time.Time) float64 { return 3 }
	o.Ranges = AllRanges()
	p = mustRun(t, o)
	if got, want := measuredRanges(p, 1), [][2]int{{0, 2}, {0, 3}, {1, 3}, {1, 4}, {2, 4}}; !slices.Equal(got, want) {
		t.Errorf("ranges %v, expected %v", got, want)
	}
	if l := p.Models[0].FindMeasurement("cpu-1", 1, 1).Ranges[1].Latency; l.WallUS != document.Micros(600*time.Microsecond) || l.CPUUS != document.Micros(588*time.Microsecond) {
		t.Errorf("six atoms take %+v", l)
	}
	for _, run := range eng.log {
		if strings.HasPrefix(run, "net[0,2)/4") || strings.HasPrefix(run, "net[1,3)/4") {
			t.Fatalf("%s: measured already", run)
		}
	}
	if now := p.Models[0].FindMeasurement("cpu-1", 1, 2); now.Blocks[0] != first.Blocks[0] || *now.WholeModel != *first.WholeModel || now.Ranges[0] != first.Ranges[0] {
		t.Error("blocks, whole and older ranges changed")
	}
	eng.log = nil
	if mustRun(t, o); len(eng.log) > 0 {
		t.Errorf("%d runs where everything is there", len(eng.log))
	}
	if eng.open != 0 {
		t.Errorf("%d blocks or bindings were not closed", eng.open)
	}
}

// planOf runs a range of "net" on a device.
func planOf(first, last, batch int, device string, estimated bool) *formats.Plan {
	infer := make([]document.Micros, batch)
	return &formats.Plan{Deployment: []formats.Deployed{{Model: "net", NumBlocks: 4, Pipelines: []formats.Pipeline{{Batch: batch, Stages: []formats.Stage{
		{Blocks: [2]int{first, last}, Device: device, Share: 1, InferUS: infer, Estimated: estimated},
	}}}}}}
}

// A plan's ranges are measured at the batches that its times are read from, and
// nothing else is.
func TestUsedRanges(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 8, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath = 4, []int{1, 4, 8}, filepath.Join(t.TempDir(), "profile.json")
	mustRun(t, o)
	o.Batches, o.Blocks = nil, 0 // what is asked for otherwise does not count: the profile keeps its four blocks
	o.Ranges = UsedRanges(planOf(1, 4, 3, "cpu-1", true))
	p := mustRun(t, o)
	for batch, want := range map[int]int{1: 1, 4: 1, 8: 0} {
		if got := measuredRanges(p, batch); len(got) != want || want > 0 && got[0] != [2]int{1, 4} {
			t.Errorf("batch %d: ranges %v", batch, got)
		}
	}
	if n := len(p.Models[0].Measurements); n != 3 {
		t.Errorf("%d measurements", n)
	}
	if n := len(p.Models[0].Blocks); n != 4 {
		t.Errorf("cut into %d blocks", n)
	}
	o.Ranges = UsedRanges(planOf(1, 4, 3, "L4", true))
	if _, err := Run(context.Background(), o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "the plan runs no blocks on cpu-1") {
		t.Errorf("a device that is not here: %v", err)
	}
}

// Ranges that do not fit into memory beside each other are measured one group after
// the other.
func TestRangesInPasses(t *testing.T) {
	m := uniformModel("net", 4, 100*time.Microsecond)
	m.weights = groupMemory / rangeMemoryFactor / 2 // a range of two blocks fills the room
	eng := newFakeEngine(m)
	most := 0
	eng.onRun = func(int) { most = max(most, eng.open) }
	o := eng.options("net")
	o.Blocks, o.Batches, o.Ranges = 4, []int{1}, AllRanges()
	if p := mustRun(t, o); len(measuredRanges(p, 1)) != 5 {
		t.Errorf("ranges %v", measuredRanges(p, 1))
	}
	if most > 2*(4+1+1) { // blocks, whole and one range, each with a binding
		t.Errorf("%d blocks and bindings open at a time", most)
	}
}

// A plan is solved and its ranges measured in turns, until no stage is estimated;
// what is not here stays.
func TestSettleMeasuresUntilNothingIsEstimated(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 8, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath, o.Precision = 4, []int{1}, filepath.Join(t.TempDir(), "profile.json"), quickRule
	mustRun(t, o)
	o.Blocks = 0
	open := o.open
	o.open = func(ctx context.Context, path string, x *Options) (model, error) {
		return open(ctx, strings.TrimSuffix(filepath.Base(path), ".onnx"), x)
	}
	on := func(*formats.Plan, string) Options { return o }
	held := func(first, last int) bool {
		p, err := formats.ReadProfile(o.OutPath)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(measuredRanges(p, 1), [2]int{first, last})
	}
	wanted := [][2]int{{0, 2}, {1, 4}} // each solve wants another one, then both are there
	solves := 0
	s, err := Settle(context.Background(), time.Hour, on, func() (*formats.Plan, error) {
		r := wanted[min(solves, 1)]
		solves++
		return planOf(r[0], r[1], 1, "cpu-1", !held(r[0], r[1])), nil
	})
	if err != nil || s.Solves != 3 || s.Ranges != 2 || len(s.EstimatedKinds) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = Settle(context.Background(), time.Hour, on, func() (*formats.Plan, error) { return planOf(0, 3, 1, "L4", true), nil })
	if err != nil || s.Solves != 1 || !slices.Equal(s.EstimatedKinds, []string{"L4"}) {
		t.Errorf("a device that is not here: %+v, %v", s, err)
	}
}
