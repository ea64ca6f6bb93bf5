package workflow

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// twoKinds is a small problem of an application that asks for each service once, one
// after the other, on two kinds of devices.
func twoKinds(rng *rand.Rand, services int) *workflowProblem {
	w := &workflowProblem{objective: "throughput", prices: []float64{1, 1 + rng.Float64()}}
	w.run, w.input = kind.NewRun(highs.Solver{}), &kind.Problem{Values: document.NewValues(formats.PlanOptions(formats.PlanFlow))}
	w.pools = []formats.Pool{{Device: "a", Count: 1 + rng.IntN(2), Memory: document.Bytes(4e9)}, {Device: "b", Count: 1 + rng.IntN(2), Memory: document.Bytes(int64(2+rng.IntN(3)) * 1e9)}}
	app := workflow{weight: 1, visits: []flow.SegmentVisits{{Chance: 1, Counts: []int32{1}}}}
	var path []flow.PathStep
	var longest time.Duration
	for s := range services {
		sv := service{name: string(rune('s' + s)), weights: int64(1+rng.IntN(3)) * 1e9, byKind: make([]serviceOnKind, 2)}
		alone := rng.IntN(5) // one of the kinds may not run it
		for k := range sv.byKind {
			if alone == k {
				continue
			}
			took := time.Duration(100+rng.IntN(900)) * time.Millisecond
			for batch := 1; batch <= 1+rng.IntN(3); batch++ {
				sv.byKind[k].batches = append(sv.byKind[k].batches, usefulBatch{batch: batch, meanTime: took, worstTime: took})
				took += time.Duration(rng.IntN(500)) * time.Millisecond
			}
		}
		w.services = append(w.services, sv)
		app.serviceOf, app.meanWork = append(app.serviceOf, s), append(app.meanWork, .2+rng.Float64())
		path = append(path, flow.PathStep{Services: []int32{int32(s)}, Work: 1})
		longest += 2 * sv.minSingleTime()
	}
	app.paths, app.slo = [][][]flow.PathStep{{path}}, longest+time.Duration(rng.Int64N(int64(3*longest)))
	w.apps = []workflow{app}
	return w
}

// eachChoice calls for all batches of all services on both kinds that keep the deadline.
func eachChoice(w *workflowProblem, s int, chosen [][]int, call func()) {
	if s == len(w.services) {
		if w.keepsDeadlines(chosen) {
			call()
		}
		return
	}
	for i := notDeployed; i < len(w.services[s].byKind[0].batches); i++ {
		for j := notDeployed; j < len(w.services[s].byKind[1].batches); j++ {
			if i == notDeployed && j == notDeployed {
				continue
			}
			chosen[s] = []int{i, j}
			eachChoice(w, s+1, chosen, call)
		}
	}
}

// leastTime is the time of the busier of two kinds, in devices of all, where work is
// shared best: by how much better the first kind is at a service, with at most one on
// both.
func leastTime(w *workflowProblem, chosen [][]int) float64 {
	n := [2]float64{float64(w.pools[0].Count), float64(w.pools[1].Count)}
	type onBoth struct{ a, b float64 }
	var both []onBoth
	fixed := [2]float64{}
	for s := range chosen {
		took := [2]float64{}
		for k, i := range chosen[s] {
			if i != notDeployed {
				took[k] = w.serviceLoad(s) * w.services[s].byKind[k].batches[i].secondsPerTask()
			}
		}
		switch {
		case chosen[s][0] == notDeployed:
			fixed[1] += took[1]
		case chosen[s][1] == notDeployed:
			fixed[0] += took[0]
		default:
			both = append(both, onBoth{took[0], took[1]})
		}
	}
	slices.SortFunc(both, func(x, y onBoth) int { return cmp.Compare(x.a*y.b, y.a*x.b) })
	best := math.Inf(1)
	for cut := range max(1, len(both)) {
		a, b := fixed[0], fixed[1]
		for i, x := range both {
			if i < cut {
				a += x.a
			} else if i > cut {
				b += x.b
			}
		}
		part := 0.0
		if len(both) > 0 { // (a + part*x.a)/n = (b + (1-part)*x.b)/n
			x := both[cut]
			part = min(1, max(0, ((b+x.b)/n[1]-a/n[0])/(x.a/n[0]+x.b/n[1])))
			a, b = a+part*x.a, b+(1-part)*x.b
		}
		best = min(best, max(a/n[0], b/n[1])*(n[0]+n[1]))
	}
	return best
}

// Batches and shares over two kinds are the best there are, and the bound is below.
func TestKindsAgainstAllChoices(t *testing.T) {
	rng := seeded.New(1, "kinds")
	shared := 0
	for i := range 60 {
		w := twoKinds(rng, 1+rng.IntN(3))
		best, chosen := math.Inf(1), make([][]int, len(w.services))
		eachChoice(w, 0, chosen, func() { best = min(best, leastTime(w, chosen)) })
		b, err := w.chooseDevices(context.Background())
		if math.IsInf(best, 1) != (err != nil) {
			t.Fatalf("%d: %v, and the best choice takes %v", i, err, best)
		}
		if err != nil {
			continue
		}
		if math.Abs(b.deviceTime/best-1) > 1e-5 || b.deviceTimeBound > best*(1+1e-9) || b.deviceTimeBound < best*(1-w.gap-1e-5) {
			t.Errorf("%d: %v devices with bound %v, the best choice takes %v", i, b.deviceTime, b.deviceTimeBound, best)
		}
		if !w.keepsDeadlines(b.batch) {
			t.Errorf("%d: %v is too slow", i, b.batch)
		}
		for s := range b.workShare {
			if b.workShare[s][0] > 1e-6 && b.workShare[s][1] > 1e-6 {
				shared++
			}
		}
	}
	if shared < 10 {
		t.Errorf("%d services run on both kinds", shared)
	}
}

// Devices that carry given rates are the cheapest of all counts.
func TestCheapestKinds(t *testing.T) {
	rng := seeded.New(2, "kinds")
	found := 0
	for i := range 40 {
		w := twoKinds(rng, 2)
		w.objective = "cost"
		w.pools[0].Count, w.pools[1].Count = 3, 3
		best := math.Inf(1)
		for n := range 16 {
			few := *w
			few.pools = slices.Clone(w.pools)
			few.pools[0].Count, few.pools[1].Count = n/4, n%4
			if n == 0 {
				continue
			}
			chosen := make([][]int, len(w.services))
			eachChoice(w, 0, chosen, func() {
				for s := range chosen {
					if few.pools[0].Count == 0 && chosen[s][0] != notDeployed || few.pools[1].Count == 0 && chosen[s][1] != notDeployed {
						return
					}
				}
				if leastTimeOn(&few, chosen) <= float64(n/4+n%4)*(1+1e-9) {
					best = min(best, float64(n/4)*w.prices[0]+float64(n%4)*w.prices[1])
				}
			})
		}
		b, err := w.chooseDevices(context.Background())
		if math.IsInf(best, 1) != (err != nil) {
			t.Fatalf("%d: %v, and the cheapest devices cost %v", i, err, best)
		}
		if err == nil {
			found++
			if math.Abs(b.price-best) > 1e-6*best || b.priceBound > best*(1+1e-6) {
				t.Errorf("%d: %v cost %v with bound %v, the cheapest %v", i, b.counts, b.price, b.priceBound, best)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d problems have a plan", found)
	}
}

// leastTimeOn is leastTime where one of the kinds may have no device.
func leastTimeOn(w *workflowProblem, chosen [][]int) float64 {
	sum := 0.0
	for s := range chosen {
		for k := range w.pools {
			if w.pools[1-k].Count == 0 {
				sum += w.serviceLoad(s) * w.services[s].byKind[k].batches[chosen[s][k]].secondsPerTask()
			}
		}
	}
	if w.pools[0].Count == 0 || w.pools[1].Count == 0 {
		return sum
	}
	return leastTime(w, chosen)
}

// What devices of two kinds hold serves as much as in any placement.
func TestPlacementOnKinds(t *testing.T) {
	rng := seeded.New(3, "kinds")
	for i := range 25 {
		w := twoKinds(rng, 3)
		w.pools[0].Count, w.pools[1].Count = 1, 1
		b, err := w.chooseDevices(context.Background())
		if err != nil {
			continue
		}
		p, err := placeServices(context.Background(), w, b)
		if err != nil {
			t.Fatal(err)
		}
		best := 0.0
		for mask := range 1 << 6 {
			best = max(best, servedOn(t, w, newPlacement(w, b), mask))
		}
		if p.servedTime < best*(1-w.input.Values.Number("gap"))-1e-6 || p.servedBound < best-1e-6 {
			t.Errorf("%d: %v served, bound %v, best %v", i, p.servedTime, p.servedBound, best)
		}
	}
}

// servedOn is the most time that a placement serves, by a linear program; bit s+3d says
// that device d holds service s.
func servedOn(t *testing.T, w *workflowProblem, p *placement, mask int) float64 {
	t.Helper()
	m := milp.New("served")
	m.SetSense(milp.Maximize)
	for s := range w.services {
		m.AddLE("", p.totalTime[s])
	}
	for d, room := range modelBytes(w) {
		time := m.AddLE("", 1)
		for s := range w.services {
			if mask>>(s+3*d)&1 == 0 {
				continue
			}
			if room -= w.services[s].weights; room < 0 || p.timeValue[s][d] == 0 {
				return 0
			}
			u := m.AddVar("", 0, 1, p.timeValue[s][d])
			m.AddTerm(time, u, 1)
			m.AddTerm(milp.Row(s), u, p.timeValue[s][d])
		}
	}
	sol, err := highs.Solver{}.Solve(context.Background(), m, milp.Options{})
	if err != nil || !sol.Feasible() {
		t.Fatalf("%v, %v", sol, err)
	}
	return sol.Value
}
