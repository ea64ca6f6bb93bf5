package search

import (
	"os"
	"testing"

	"inferplan/bench/gear/published"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
)

// family is one of the published families that need no reference data.
type family struct{ make func() *published.Family }

var (
	bert5  = family{published.BERT5}
	llama4 = family{published.Llama4}
)

// long asks for tests that take minutes; short ones leave out what takes seconds.
var long = os.Getenv("INFERPLAN_LONG") != ""

// problem is the family's planning problem on some devices: ten equal ranges
// with Zipf weights.
func (f *family) problem(t testing.TB, devices, grid int) *cascades.Problem {
	pub := f.make()
	p := &cascades.Problem{Grid: grid, Kinds: []cascades.Kind{{Name: "device", Devices: devices, Memory: pub.Memory, Price: 1}}, SLO: pub.SLO, Percentile: .95, RangeEdges: cascades.EqualRanges(pub.Peak, 10), RangeWeights: cascades.ZipfWeights(10)}
	for _, m := range pub.Models {
		p.Models = append(p.Models, cascades.NewModel(m.Name, cascades.Variant{MedianTimes: m.Times, Memory: m.Memory}))
	}
	var err error
	if p.Thresholds, p.PlanningSamples, p.HeldOutSamples, err = cascades.GradeRecords(pub.Records, pub.ModelNames(), grid); err != nil {
		t.Fatal(err)
	}
	return p
}

// planKey identifies a plan that several tests look at.
type planKey struct {
	family  *family
	devices int
}

// sharedPlans holds the plans of planOnce.
var sharedPlans = map[planKey]*trials.Plan{}

// planOnce returns the most accurate plan of the family's problem on some devices, of a grid of 10 and by seed 1. It is
// made once, so the caller must not change it.
func (f *family) planOnce(t testing.TB, devices int) *trials.Plan {
	t.Helper()
	key := planKey{f, devices}
	if sharedPlans[key] == nil {
		plan, err := Solve(t.Context(), f.problem(t, devices, 10), solver(t), Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		sharedPlans[key] = plan
	}
	return sharedPlans[key]
}
