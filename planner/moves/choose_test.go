package moves

import (
	"context"
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// Searches near what runs may move none, one, and then twice as many devices, up to the most, until a candidate is near enough.
func TestLimitsDouble(t *testing.T) {
	for _, c := range []struct {
		name                string
		maxMoved, bestMoved int
		want                []int
	}{
		{"up to the most", 10, 40, []int{0, 1, 2, 4, 8, 10}},
		{"none may move", 0, 40, []int{0}},
		{"before what the best plan moves", 10, 3, []int{0, 1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			chooser := &Chooser{Sense: milp.Maximize, Gap: 0.01, MaxMoved: c.maxMoved}
			if limits := slices.Collect(chooser.Limits(t.Context(), 100, c.bestMoved)); !slices.Equal(limits, c.want) {
				t.Errorf("limits %v, expected %v", limits, c.want)
			}
		})
	}

	// A candidate within the gap ends the series, and so does the context.
	chooser := &Chooser{Sense: milp.Maximize, Gap: 0.01, MaxMoved: 10}
	var limits []int
	for limit := range chooser.Limits(t.Context(), 100, 40) {
		if limits = append(limits, limit); limit == 2 {
			chooser.Add(&kind.Outcome{Objective: formats.Objective{Value: 99.5}, Replan: &formats.Replan{MovedGPUs: 2}})
		}
	}
	if !slices.Equal(limits, []int{0, 1, 2}) {
		t.Errorf("limits %v after a candidate that moves 2 devices", limits)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if limits := slices.Collect(chooser.Limits(ended, 200, 40)); limits != nil {
		t.Errorf("limits %v after the context has ended", limits)
	}
}
