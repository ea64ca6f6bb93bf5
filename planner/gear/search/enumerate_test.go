package search

import (
	"testing"

	"inferplan/planner/gear/cascades"
)

// Counts of cascades and front sizes of an independent prototype of CascadeServe.
func TestEnumeratePublishedCounts(t *testing.T) {
	for _, c := range []struct {
		f                     *family
		name                  string
		grid, cascades, front int
	}{
		{&bert5, "bert5", 5, 778, 48},
		{&bert5, "bert5", 10, 10527, 99},
		{&llama4, "llama4", 10, 1111, 46},
		{&llama4, "llama4", 20, 8376, 98},
	} {
		p := c.f.problem(t, 1, c.grid)
		got := cascades.Enumerate(p.PlanningSamples, c.grid, usableOf(p))
		front := cascades.ParetoFront(totalWorks(p, got), got)
		if len(got) != c.cascades || len(front) != c.front {
			t.Errorf("%s, grid %d: %d cascades, front of %d, expected %d and %d", c.name, c.grid, len(got), len(front), c.cascades, c.front)
		}
	}
}
