package pool

import (
	"math"
	"testing"

	"inferplan/solver/queueing"
)

// The factor found by a utilisation gives that utilisation again, and more places are used more.
func TestRoomFactor(t *testing.T) {
	list := []waitingRoom{{rate: 300, places: 4}, {rate: 100, places: 12}}
	for _, use := range []float64{.8, .9, .95} {
		if again := sustainable(list, .01, roomFactor(list, .01, use)); math.Abs(again-use) > 1e-3 {
			t.Errorf("utilisation %v becomes %v", use, again)
		}
	}
	if few, many := sustainable(list, .01, 1), sustainable(list, .01, 2); many <= few {
		t.Errorf("twice the places allow %v, once %v", many, few)
	}
	if one, want := sustainable(list[1:], .01, 1), queueing.MostLoad(12, .01); math.Abs(one-want) > 1e-4 {
		t.Errorf("one pipeline is used at %v, expected %v", one, want)
	}
}
