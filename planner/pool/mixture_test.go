package pool

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The utilisation that the formula gives drops the share asked in a simulated queue, too: requests at random
// to one server of constant speed, of which those that find too much work are dropped.
func TestSustainable(t *testing.T) {
	const dropped = .01
	for _, places := range []float64{5, 10, 20, 50} {
		use := sustainable([]waitingRoom{{rate: 100, places: places}}, dropped, 1)
		r, work, lost, count := rand.New(rand.NewPCG(1, 2)), 0.0, 0, 2_000_000
		for range count {
			work = max(0, work-r.ExpFloat64()/use)
			if work > places {
				lost++
				continue
			}
			work++
		}
		if share := float64(lost) / float64(count); math.Abs(share-dropped) > .5*dropped {
			t.Errorf("%v places: at utilisation %.3f %.4f are dropped", places, use, share)
		}
	}
}

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
}
