package cascades

import (
	"slices"
	"testing"
)

// Flows become shares of their sum, none at all even parts.
func TestToShares(t *testing.T) {
	some, none := []float64{1, 3}, []float64{0, 0, 0, 0}
	Normalise(some)
	Normalise(none)
	if !slices.Equal(some, []float64{.25, .75}) || !slices.Equal(none, []float64{.25, .25, .25, .25}) {
		t.Errorf("%v and %v", some, none)
	}
}
