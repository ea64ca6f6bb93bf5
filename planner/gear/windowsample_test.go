package gear

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A part holds whole windows in the order of time, the busiest among them, and about
// one request in as many as the rates are too many by.
func TestPartOfManyRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &Problem{OverRequests: true, SLO: time.Duration(rapid.IntRange(50, 2000).Draw(t, "slo ms")) * time.Millisecond}
		scale := rapid.Float64Range(300, 900).Draw(t, "scale")
		for second := range rapid.IntRange(1500, 4000).Draw(t, "seconds") {
			p.MeasuredRates = append(p.MeasuredRates, math.Floor(scale*(2+math.Sin(float64(second)/200)+float64(second%7)/7)))
		}
		part, size := sampleWindows(p), int(math.Ceil(10*p.SLO.Seconds()))
		busiest, n := 0., 0
		for w := range slices.Chunk(p.MeasuredRates, size) {
			busiest = max(busiest, sum(w))
		}
		from, found := 0, 0.
		for w := range slices.Chunk(part.MeasuredRates, size) {
			n++
			found = max(found, sum(w))
			for len(w) == size && from+size <= len(p.MeasuredRates) && !slices.Equal(p.MeasuredRates[from:from+size], w) {
				from += size
			}
			if len(w) == size && from+size > len(p.MeasuredRates) {
				t.Fatalf("window %d of the part is none of the rates, or not in their order", n)
			}
			from += size
		}
		every := math.Ceil(sum(p.MeasuredRates) / maxSampledRequests)
		if share := sum(part.MeasuredRates) / sum(p.MeasuredRates) * every; found < busiest || math.Abs(share-1) > .3 && n > 20 {
			t.Errorf("%v of %v requests in %d windows, every %vth; busiest %v of %v", sum(part.MeasuredRates), sum(p.MeasuredRates), n, every, found, busiest)
		}
	})
}

// What climbs on a part of the rates is followed as far as the whole allows: the plan is
// more accurate than before, and keeps the SLO on streams that nothing was tried on.
func TestClimbOnAPartIsFollowed(t *testing.T) {
	refused := 0
	for _, c := range []struct {
		devices, every int
	}{{3, 15}, {3, 20}, {2, 120}} {
		p := burstyProblem(t, c.devices, 1, c.every)
		p.OverRequests = false // so that nothing climbs yet
		plan, err := Solve(context.Background(), p, programs, Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		q := *plan.Problem
		q.OverRequests, q.MeasuredRates = true, p.MeasuredRates
		plan.Problem = &q
		calm := q
		calm.MeasuredRates = slices.Repeat(p.MeasuredRates[:c.every-5], 3) // without the bursts: too much will be climbed
		part := newClimber(&calm, plan, 7)
		if err := part.climbAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		whole := newClimber(&q, plan, 7)
		if err := whole.repeatSteps(context.Background(), part.steps); err != nil {
			t.Fatal(err)
		}
		climbed := whole.climbedPlan(plan)
		t.Logf("%d devices: %.4f to %.4f, %d of %d steps", c.devices, plan.Accuracy, climbed.Accuracy, len(whole.steps), len(part.steps))
		refused += len(part.steps) - len(whole.steps)
		if before, after := freshAccuracy(t, plan, p), freshAccuracy(t, climbed, p); after <= before {
			t.Errorf("%d devices: %.4f on fresh streams, %.4f before", c.devices, after, before)
		}
		onFreshStreams(t, climbed, 1)
	}
	if refused == 0 {
		t.Error("the rates as a whole refused no step, expected some")
	}
}
