package reserve_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/policy/reserve"
)

// bookedWork is a reservation as the oracle keeps it.
type bookedWork struct {
	reserve.Work
	a, b  int32 // resources; b < 0: one
	order int
}

func (w *bookedWork) uses(res int32) bool { return w.a == res || w.b == res }

// fifo starts all work first-in first-out, each resource free for one at a
// time: the oracle, quadratic and without any structure.
func fifo(work []bookedWork) []time.Duration {
	index := make([]int, len(work))
	for i := range index {
		index[i] = i
	}
	slices.SortFunc(index, func(i, j int) int {
		return cmp.Or(cmp.Compare(work[i].Ready, work[j].Ready), cmp.Compare(work[i].order, work[j].order))
	})
	starts := make([]time.Duration, len(work))
	for k, i := range index {
		starts[i] = work[i].Ready
		for _, j := range index[:k] {
			if work[j].uses(work[i].a) || work[i].b >= 0 && work[j].uses(work[i].b) {
				starts[i] = max(starts[i], starts[j]+work[j].Dur)
			}
		}
	}
	return starts
}

// oracleSlot is the oracle's slot: the least hold with which first-in first-out
// moves nothing that is booked.
func oracleSlot(work []bookedWork, w bookedWork) (start, hold time.Duration) {
	holds := []time.Duration{0}
	for i := range work {
		if work[i].Ready > w.Ready {
			holds = append(holds, work[i].Ready-w.Ready)
		}
	}
	slices.Sort(holds)
	for _, h := range holds {
		late := w
		late.Ready += h
		starts := fifo(append(slices.Clone(work), late))
		unmoved := true
		for i := range work {
			unmoved = unmoved && starts[i] == work[i].Start
		}
		if unmoved {
			return starts[len(work)], h
		}
	}
	panic("behind everything nothing moves")
}

// Slots of single resources and of pairs are those of the oracle, in timelines
// that grow by what was found.
func TestSlotsAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tl := reserve.NewTimeline(64)
		var work []bookedWork
		for i := range rapid.IntRange(1, 25).Draw(t, "n") {
			w := bookedWork{order: i, a: int32(rapid.IntRange(0, 1).Draw(t, "a")), b: -1}
			if rapid.Bool().Draw(t, "pair") {
				w.b = 2
			}
			w.Ready = time.Duration(rapid.IntRange(0, 60).Draw(t, "ready"))
			w.Dur = time.Duration(rapid.IntRange(1, 9).Draw(t, "dur"))
			start, hold := tl.Slot(w.a, w.b, w.Ready, w.Dur)
			wantStart, wantHold := oracleSlot(work, w)
			if start != wantStart || hold != wantHold {
				t.Fatalf("work %d of %d ready at %d on %d,%d: start %d hold %d, the oracle has %d and %d; booked %+v", i, w.Dur, w.Ready, w.a, w.b, start, hold, wantStart, wantHold, work)
			}
			// Held work comes later, as the policy would send it.
			w.Ready += hold
			w.Start = start
			tl.Insert(w.a, w.b, w.Work)
			work = append(work, w)
		}
	})
}
