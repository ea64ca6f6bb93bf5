package workflow

import (
	"context"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// The greedy placement and the program agree with a search over all placements on
// small problems.
func TestPlacementIsBest(t *testing.T) {
	rng := seeded.New(1, "placement")
	for range 30 {
		placeSmall(t, rng.IntN)
	}
}

// placeSmall draws a small problem.
func placeSmall(t *testing.T, draw func(int) int) {
	t.Helper()
	w := &workflowProblem{}
	w.run, w.input = kind.NewRun(highs.Solver{}), &kind.Problem{Values: document.NewValues(formats.PlanOptions(formats.PlanFlow))}
	w.objective, w.gap = "gpus", 0
	w.pools = []formats.Pool{{Device: "card", Count: 2, Memory: document.Bytes(4e9)}}
	const services = 4
	b := chosenBatches{counts: []int{2}}
	app := workflow{weight: 1}
	for range services {
		w.services = append(w.services, service{weights: int64(1+draw(3)) * 1e9, byKind: []serviceOnKind{{batches: []usefulBatch{{batch: 1, meanTime: time.Second, worstTime: time.Second}}}}})
		app.meanWork = append(app.meanWork, float64(draw(8))/10)
		b.batch, b.workShare = append(b.batch, []int{0}), append(b.workShare, []float64{1})
	}
	w.apps = []workflow{app}
	p, err := placeServices(context.Background(), w, &b)
	if err != nil {
		t.Fatal(err)
	}
	best := 0.0
	for mask := range 1 << (2 * services) {
		best = max(best, servedBy(w.services, app.meanWork, mask))
	}
	if p.servedTime < best-1e-6 || p.servedBound < best-1e-6 {
		t.Errorf("weights and work of %v: %v served, bound %v, best %v", app.meanWork, p.servedTime, p.servedBound, best)
	}
	for d := range p.heldServices {
		left := int64(4e9)
		for _, s := range p.heldServices[d] {
			left -= w.services[s].weights
		}
		if left < 0 {
			t.Errorf("device %d holds %v", d, p.heldServices[d])
		}
	}
}

// servedBy is the most time that a placement on two devices of 4 GB serves; bit
// s+4d says that device d holds service s.
func servedBy(list []service, work []float64, mask int) float64 {
	only, both := [2]float64{}, 0.0
	for d := range 2 {
		left := int64(4e9)
		for s := range list {
			if mask>>(s+len(list)*d)&1 == 1 {
				left -= list[s].weights
			}
		}
		if left < 0 {
			return 0
		}
	}
	for s := range list {
		a, b := mask>>s&1 == 1, mask>>(s+len(list))&1 == 1
		switch {
		case a && b:
			both += work[s]
		case a:
			only[0] += work[s]
		case b:
			only[1] += work[s]
		}
	}
	first, second := min(1, only[0]), min(1, only[1])
	return first + second + min(both, 2-first-second)
}
