package headroom

import (
	"math"
	"testing"

	"inferplan/solver/queueing"
)

// The factor found by a utilisation gives that utilisation again, and more places are used more.
func TestPlaceFactorInvertsUtilisation(t *testing.T) {
	list := []pipelineQueue{{serviceRate: 300, waitingPlaces: 4}, {serviceRate: 100, waitingPlaces: 12}}
	for _, use := range []float64{.8, .9, .95} {
		if again := sustainableUtilisation(list, .01, placeFactor(list, .01, use)); math.Abs(again-use) > 1e-3 {
			t.Errorf("utilisation %v becomes %v", use, again)
		}
	}
	if few, many := sustainableUtilisation(list, .01, 1), sustainableUtilisation(list, .01, 2); many <= few {
		t.Errorf("twice the places allow %v, once %v", many, few)
	}
	if one, want := sustainableUtilisation(list[1:], .01, 1), queueing.MaxLoad(12, .01); math.Abs(one-want) > 1e-4 {
		t.Errorf("one pipeline is used at %v, expected %v", one, want)
	}
}
