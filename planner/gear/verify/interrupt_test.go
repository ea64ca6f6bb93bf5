package verify_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

// endsAfter is a context that ends when so many simulations and programs have begun.
type endsAfter struct {
	context.Context
	cancel          context.CancelFunc
	remainingChecks int
}

func newEndsAfter(n int) *endsAfter {
	c := &endsAfter{remainingChecks: n}
	c.Context, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *endsAfter) Done() <-chan struct{} {
	if c.remainingChecks--; c.remainingChecks == 0 {
		c.cancel()
	}
	return c.Context.Done()
}

// withAccuracySLO is the documents with an accuracy asked for, of the samples planned on alone, and
// a latency; 0: no latency.
func withAccuracySLO(in planner.Inputs, accuracy float64, latency time.Duration) planner.Inputs {
	in.Profile.Records[0].PlanningSamples = in.Profile.Records[0].Samples
	formats.CascadeOf(in.Workload).SLO = formats.CascadeSLO{Accuracy: accuracy, Latency: document.SLO{Duration: latency}}
	return in
}

// publishedDocuments are the documents of a family that others published, 4000 samples held out.
func publishedDocuments(devices int, accuracy float64) planner.Inputs {
	f, in := published.Llama4(), cascadeDocuments(devices, 0, 1)
	in.Profile.Models, in.Profile.Records = nil, []formats.Records{*f.Records}
	in.Profile.Records[0].PlanningSamples = f.Records.Samples - 4000
	for _, m := range f.Models {
		one := formats.ProfileModel{Model: m.Name, Blocks: []formats.Block{{Name: "all", WeightBytes: m.Memory}}}
		for b, t := range m.Times {
			one.Measurements = append(one.Measurements, formats.Measurement{Device: "cpu-1", Share: 1, Batch: b + 1, Blocks: []formats.Latency{{WallUS: document.Micros(t)}}})
		}
		in.Profile.Models = append(in.Profile.Models, one)
	}
	in.Cluster.Pools[0].Memory = document.Bytes(f.Memory)
	c := formats.CascadeOf(in.Workload)
	c.Family, c.SLO.Accuracy, c.SLO.Latency.Duration = f.ModelNames(), accuracy, f.SLO
	c.QPS = formats.CascadeQPS{Max: f.Peak, Ranges: 10, Distribution: "zipf"}
	return in
}

// interruptedCases are searches that go on after their first plan, by how.
func interruptedCases(t *testing.T) map[string]planner.Inputs {
	memory := func(devices int, peak float64, slo time.Duration) planner.Inputs {
		in := cascadeDocuments(devices, 4500, 2)
		formats.CascadeOf(in.Workload).QPS.Max, formats.CascadeOf(in.Workload).SLO.Latency.Duration = peak, slo
		return in
	}
	either := climbingDocuments(t)
	formats.CascadeOf(either.Workload).SLO.Scope = ""
	late := cascadeDocuments(1, 0, 1)
	formats.CascadeOf(late.Workload).SLO = formats.CascadeSLO{Scope: formats.ScopeRequests, Latency: document.SLO{Duration: 8e6}}
	formats.CascadeOf(late.Workload).QPS = formats.CascadeQPS{Max: 1500, Histogram: []float64{.7, .1, .2}}
	lateOnKinds, few := onTwoKinds(), withAccuracySLO(onTwoKinds(), .8, 100*time.Millisecond)
	formats.CascadeOf(lateOnKinds.Workload).SLO.Scope = formats.ScopeRequests
	few.Cluster.Pools[1].Count = 3
	fast := withAccuracySLO(onTwoKinds(), .8, 0)
	formats.CascadeOf(fast.Workload).QPS.Ranges = 1
	return map[string]planner.Inputs{
		"accuracy":                         memory(2, 1800, 20*time.Millisecond),
		"over requests":                    late,
		"over requests at measured rates":  climbingDocuments(t),
		"over what is better":              either,
		"fewest devices, samples held out": publishedDocuments(12, .6),
		"least latency":                    withAccuracySLO(memory(4, 2800, 0), .8, 0),
		"accuracy on two kinds":            onTwoKinds(),
		"over requests on two kinds":       lateOnKinds,
		"fewest devices on two kinds":      few,
		"least latency on two kinds":       fast,
	}
}

// A search that ends early keeps the plan that it has, wherever that is: the plan says so,
// it holds, and what bounds it bounds the plan of the whole search as well. Once there is
// a plan, there is one ever after.
func TestInterruptedGearPlanHolds(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	for name, in := range interruptedCases(t) {
		t.Run(name, func(t *testing.T) { interruptEverywhere(t, in) })
	}
}

func interruptEverywhere(t *testing.T, in planner.Inputs) {
	never := newEndsAfter(math.MaxInt)
	whole, err := planner.Solve(never, in, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const points = 6
	all, plans := math.MaxInt-never.remainingChecks, 0
	for k := 1; k <= points; k++ {
		res, err := planner.Solve(newEndsAfter((all-1)*k/points), in, planner.Options{}, highs.Solver{}, nil)
		switch {
		case errors.Is(err, context.Canceled) && plans == 0:
		case err != nil:
			t.Fatalf("at %d of %d, after %d plans: %v", k, points, plans, err)
		default:
			plans++
			interruptedPlan(t, in, res, whole.Plan)
		}
	}
	if t.Logf("plans at the last %d of %d points", plans, points); plans == 0 {
		t.Error("no plan was kept: the case shows nothing")
	}
}

// interruptedPlan holds a plan of a search that was cut short against that of the whole one.
func interruptedPlan(t *testing.T, in planner.Inputs, res *planner.Result, whole *formats.Plan) {
	t.Helper()
	if res.StoppedBy != "interrupt" || res.Status != "interrupted" || res.Plan.StoppedBy != "interrupt" {
		t.Errorf("stopped by %s, status %s, in the plan %s", res.StoppedBy, res.Status, res.Plan.StoppedBy)
	}
	o, sense := res.Plan.Objective, 1.
	if o.Name != "accuracy" {
		sense = -1
	}
	best := o.Value
	if formats.GearOf(res.Plan).SLOScope == formats.GearOf(whole).SLOScope { // of another SLO nothing is said
		best = whole.Objective.Value
	}
	if sense*(*o.Bound-o.Value) < -1e-9 || sense*(*o.Bound-best) < -1e-9 {
		t.Errorf("%s %v of %v at best, the whole search finds %v", o.Name, o.Value, *o.Bound, best)
	}
	if got := check.FindingsOf(todayOf(res.Plan, in)); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
