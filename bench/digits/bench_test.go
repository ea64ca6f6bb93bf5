package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
)

// The parts of the recorded traces are where the table says.
func TestRecordedTraces(t *testing.T) {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(filepath.Join(dir, "traces")); err != nil {
		t.Skipf("no reference data: set INFERPLAN_DATA to the folder that holds traces/ (%v)", err)
	}
	for _, tr := range append(slices.Clone(usual), spike) {
		r, err := tr.rates(dir, 15, 1)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Min(r) <= 0 || slices.Max(r) != 1 {
			t.Errorf("%s: rates %v", tr.name, r)
		}
		if tr.name == "spike" && (r[0] > .2 || r[len(r)-1] > .2) {
			t.Errorf("the spike does not come and go: %v", r)
		}
	}
}

func TestArrivals(t *testing.T) {
	list := poisson([]float64{2000, 0, 4000}, 1)
	var by [3]int
	for i, at := range list[leadCount:] {
		if at < list[leadCount+i-1] || at < leadIn {
			t.Fatalf("arrival %d at %v, after %v", i, at, list[leadCount+i-1])
		}
		by[int((at-leadIn).Seconds())]++
	}
	if math.Abs(float64(by[0])-2000) > 150 || by[1] != 0 || math.Abs(float64(by[2])-4000) > 200 {
		t.Errorf("%v arrivals by second, expected about 2000, 0 and 4000", by)
	}
}

func TestSamplesInTurn(t *testing.T) {
	got := shuffled([]int{3, 4, 5}, 8, 1)
	count := map[int]int{}
	for _, row := range got[:6] {
		count[row]++
	}
	if len(got) != 8 || count[3] != 2 || count[4] != 2 || count[5] != 2 {
		t.Errorf("rows %v, expected each of 3, 4 and 5 once in every three", got)
	}
}

// Samples that repeat say no more than once: the variance is that of the mean
// over samples, not over requests.
func TestClustered(t *testing.T) {
	sum, count, sums, counts := map[int]float64{}, map[int]float64{}, map[int]float64{}, map[int]float64{}
	for row := range 100 {
		d := float64(row % 2)
		sum[row], count[row], sums[row], counts[row] = d, 1, 7*d, 7
	}
	want := .25 / 100
	if a, b := clustered(sum, count), clustered(sums, counts); math.Abs(a-want) > 1e-12 || math.Abs(b-want) > 1e-12 {
		t.Errorf("variance %v of samples seen once, %v of samples seen seven times, expected %v", a, b, want)
	}
}

// A run is judged behind its lead-in, by what is answered.
func TestRunIsJudged(t *testing.T) {
	plan := &formats.Plan{Kind: formats.PlanGear, Section: &formats.GearPlan{Samples: 100, Gears: []formats.Gear{{Accuracy: .5}}}}
	r := &run{lead: 1, answers: []answer{{}, {row: 0, correct: true, took: time.Millisecond}, {row: 1, took: 3 * time.Millisecond}, {row: 2, lost: true}}, service: &turn.ServiceTimes{}}
	v := r.judge(plan)
	if v.requests != 3 || v.lost != 1 || v.accuracy != .5 || v.planned != .5 || v.halfWidth <= 0 || v.p95 != 3*time.Millisecond {
		t.Errorf("%+v", v)
	}
}
