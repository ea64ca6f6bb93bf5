package search

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
)

// burstyProblem is a problem whose rates rise above what its gears could hold for ever, a few
// seconds at a time, every so many seconds.
func burstyProblem(t testing.TB, devices int, seed uint64, every int) *cascades.Problem {
	p := llama4.problem(t, devices, 10)
	rng := seeded.New(seed, "bursts")
	for range 600 / every {
		for range every - 5 {
			p.MeasuredRates = append(p.MeasuredRates, 20+6*rng.Float64())
		}
		for range 5 {
			p.MeasuredRates = append(p.MeasuredRates, 45+15*rng.Float64())
		}
	}
	peak := slices.Max(p.MeasuredRates)
	p.RangeEdges, p.OverRequests = cascades.EqualRanges(peak, 10), true
	p.RangeWeights = cascades.ServedWeights(p.MeasuredRates, peak, 10, seed)
	return p
}

// freshAccuracy is what gears show on streams of the measured rates that the planner did
// not see.
func freshAccuracy(t testing.TB, plan *trials.Plan, p *cascades.Problem) float64 {
	q := *plan.Problem
	q.MeasuredRates, q.OverRequests = p.MeasuredRates, true
	b, shown := trials.NewSimulator(&q, plan.Configs, nil, 2000), 0.0
	const n = 6
	for k := range n {
		now, err := b.RunMeasured(context.Background(), plan.Gears, k, 1)
		if err != nil {
			t.Fatal(err)
		}
		shown += now.Accuracy / n
	}
	return shown
}

// Ranges climb where the rates allow it: some gear has more work at its upper edge than
// the devices have the time for. The plan is more accurate than gears that hold their
// ranges, what it says comes out on streams that it did not see, and these keep the SLO.
// On six devices with INFERPLAN_LONG.
func TestRangesClimb(t *testing.T) {
	fleets := []int{3}
	if long {
		fleets = append(fleets, 6)
	}
	for _, devices := range fleets {
		p := burstyProblem(t, devices, 1, 30)
		without := *p
		without.MeasuredRates = nil
		apart, err := Solve(context.Background(), &without, programs, Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		plan, _ := climbingPlan(t, devices, 4)
		load, late := 0.0, 0.0
		for r := range plan.Gears {
			load, late = max(load, plan.Gears[r].BusiestLoad), late+plan.Problem.RangeWeights[r]*plan.Gears[r].LateShare
			if plan.Gears[r].Bound < plan.Gears[r].Accuracy {
				t.Errorf("%d devices: range %d above its bound", devices, r)
			}
		}
		before, after := freshAccuracy(t, apart, p), freshAccuracy(t, plan, p)
		t.Logf("%d devices: on fresh streams %.4f, with ranges that hold their edges %.4f; planned %.4f of %.4f at a load of %.2f", devices, after, before, plan.Accuracy, plan.Bound, load)
		if load <= 1 || after <= before || plan.Accuracy > plan.Bound || late > 1-p.Percentile || plan.TailLatency > p.SLO {
			t.Errorf("%d devices: load %.2f, %.4f late, p95 %v, bound %.4f", devices, load, late, plan.TailLatency, plan.Bound)
		}
		if math.Abs(after-plan.Accuracy) > .001 {
			t.Errorf("%d devices: says %.4f, shows %.4f on fresh streams", devices, plan.Accuracy, after)
		}
		onFreshStreams(t, plan, 1)
	}
}

// An accuracy that gears which hold their ranges miss on two devices is reached there by
// ranges that climb: what a target is held against is the plan after that.
func TestTargetReachedByClimbing(t *testing.T) {
	p := burstyProblem(t, 4, 1, 60)
	p.TargetAccuracy = .628
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	above := slices.ContainsFunc(plan.Gears, func(g trials.PlannedGear) bool { return g.BusiestLoad > 1 })
	if plan.Value != 3 || plan.Accuracy < p.TargetAccuracy || !above {
		t.Errorf("%v devices for %.4f with a range above its devices' time: %v, expected 3 with one", plan.Value, plan.Accuracy, above)
	}
}

// climbingPlans are the plans of climbingPlan, by its arguments.
var climbingPlans = map[[2]int]*trials.Plan{}

// climbingPlan returns the plan, by seed 7, of bursts every 30 seconds on identical devices, searched on a number of processors, and
// its text. A plan that was made before is not searched again.
func climbingPlan(t *testing.T, devices, processors int) (plan *trials.Plan, text string) {
	t.Helper()
	plan = climbingPlans[[2]int{devices, processors}]
	if plan == nil {
		before := runtime.GOMAXPROCS(processors)
		var err error
		plan, err = Solve(context.Background(), burstyProblem(t, devices, 1, 30), programs, Options{Seed: 7})
		runtime.GOMAXPROCS(before)
		if err != nil {
			t.Fatal(err)
		}
		climbingPlans[[2]int{devices, processors}] = plan
	}
	return plan, fmt.Sprintf("%v %v %v %v", plan.Accuracy, plan.RunCount, plan.Problem.RangeWeights, plan.Gears)
}

// A climb is the same on any number of processors, and counts its runs once.
func TestClimbIsTheSameAgain(t *testing.T) {
	_, expected := climbingPlan(t, 3, 4)
	if _, text := climbingPlan(t, 3, 1); text != expected {
		t.Errorf("on one processor %s, expected %s", text, expected)
	}
}

// At a rate that never changes no plan exceeds what the devices have the time for, but
// for the requests that may be late; and any window bounds.
func TestMeasuredBoundOfASteadyRate(t *testing.T) {
	p := llama4.problem(t, 5, 10)
	p.Percentile = .999999
	list := planspace.WholeCascades(p)
	for _, rate := range []float64{20, 40, 60} {
		p.MeasuredRates = slices.Repeat([]float64{rate}, 1200)
		e := envelopeOf(p, list)
		least, most := e.At(float64(p.Kinds[0].Devices)/rate), e.At(float64(p.Kinds[0].Devices)/rate*(1+p.SLO.Seconds()/1024)*1.001)
		if got := poolOf(t, p, list).MeasuredBound(); got < least-1e-9 || got > most+1e-4 {
			t.Errorf("%v requests a second: bound %.5f, expected %.5f to %.5f", rate, got, least, most)
		}
	}
}

// The bound is above what exhaustive search finds of gears on a stream, whether they hold
// their ranges or not.
func TestMeasuredBoundAboveAllGears(t *testing.T) {
	p := burstyProblem(t, 4, 3, 30)
	p.Models, p.Grid = p.Models[1:], 3
	pub := llama4.make()
	var err error
	if p.Thresholds, p.PlanningSamples, p.HeldOutSamples, err = cascades.GradeRecords(pub.Records, pub.ModelNames()[1:], p.Grid); err != nil {
		t.Fatal(err)
	}
	p.RangeEdges = cascades.EqualRanges(slices.Max(p.MeasuredRates), 2)
	p.RangeWeights = cascades.ServedWeights(p.MeasuredRates, slices.Max(p.MeasuredRates), 2, 1)
	list := planspace.WholeCascades(p)
	l := bestLayout(t, fleetOf(p, list))
	b, best, loads := trials.NewSimulator(p, l.Configs, nil, 5), 0.0, 0.0
	front := stairsOn(t, l, 0)
	for _, low := range front {
		for _, high := range front {
			gears := []trials.PlannedGear{trials.NewGear(p, &low, p.RangeEdges[0], trials.Trial{}), trials.NewGear(p, &high, p.RangeEdges[1], trials.Trial{})}
			now, err := b.RunMeasured(context.Background(), gears, 0, 1-p.Percentile)
			if err != nil {
				t.Fatal(err)
			}
			if now.KeepsSLO(p) && now.Accuracy > best {
				best, loads = now.Accuracy, max(gears[0].BusiestLoad, gears[1].BusiestLoad)
			}
		}
	}
	bound := poolOf(t, p, list).MeasuredBound()
	t.Logf("best of %d pairs of gears %.4f at a load of %.2f, bound %.4f", len(front)*len(front), best, loads, bound)
	if best == 0 || best > bound {
		t.Errorf("gears with %.4f, bound %.4f", best, bound)
	}
}
