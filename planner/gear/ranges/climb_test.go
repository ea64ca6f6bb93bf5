package ranges

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
)

// A part holds whole windows in the order of time, the busiest among them, and about
// one request in as many as the rates are too many by.
func TestPartOfManyRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &cascades.Problem{OverRequests: true, SLO: time.Duration(rapid.IntRange(50, 2000).Draw(t, "slo ms")) * time.Millisecond}
		scale := rapid.Float64Range(300, 900).Draw(t, "scale")
		for second := range rapid.IntRange(1500, 4000).Draw(t, "seconds") {
			p.MeasuredRates = append(p.MeasuredRates, math.Floor(scale*(2+math.Sin(float64(second)/200)+float64(second%7)/7)))
		}
		part, size := sampleWindows(p), int(math.Ceil(10*p.SLO.Seconds()))
		busiest, n := 0., 0
		for w := range slices.Chunk(p.MeasuredRates, size) {
			busiest = max(busiest, lists.Total(w))
		}
		from, found := 0, 0.
		for w := range slices.Chunk(part.MeasuredRates, size) {
			n++
			found = max(found, lists.Total(w))
			for len(w) == size && from+size <= len(p.MeasuredRates) && !slices.Equal(p.MeasuredRates[from:from+size], w) {
				from += size
			}
			if len(w) == size && from+size > len(p.MeasuredRates) {
				t.Fatalf("window %d of the part is none of the rates, or not in their order", n)
			}
			from += size
		}
		every := math.Ceil(lists.Total(p.MeasuredRates) / maxSampledRequests)
		if share := lists.Total(part.MeasuredRates) / lists.Total(p.MeasuredRates) * every; found < busiest || math.Abs(share-1) > .3 && n > 20 {
			t.Errorf("%v of %v requests in %d windows, every %vth; busiest %v of %v", lists.Total(part.MeasuredRates), lists.Total(p.MeasuredRates), n, every, found, busiest)
		}
	})
}
