package reserve

import (
	"testing"
	"time"
)

const tick = time.Millisecond

// reserveRuns enters a batch's reservations into timelines, each behind all that is there:
// a run of one tick on each resource.
func reserveRuns(t *timelines, batch int32, readyAt time.Duration, resources ...int32) {
	for h, res := range resources {
		n := t.lists.reservationOf(batch, int16(h), onDevice)
		t.lists.reservations[n] = reservation{readyAt: readyAt, start: max(readyAt, t.lists.summaries[res].lastEnd), duration: tick, prev: -1, next: -1, resource: res, readyIsActual: h == 0}
		t.lists.linkAfter(n, t.lists.summaries[res].last)
		readyAt = t.lists.reservations[n].end()
	}
}

// starts are those of a batch's runs.
func starts(t *timelines, batch int32, hops int16) []time.Duration {
	var out []time.Duration
	for h := range hops {
		out = append(out, t.lists.reservations[t.lists.reservationOf(batch, h, onDevice)].start)
	}
	return out
}

func wholeTimelines(t *testing.T, tl *timelines) {
	t.Helper()
	for res := range tl.lists.summaries {
		free := tl.lists.freeFrom[res]
		for n := tl.lists.summaries[res].first; n >= 0; n = tl.lists.reservations[n].next {
			entry := &tl.lists.reservations[n]
			if want := max(entry.readyAt, free); entry.start != want {
				t.Fatalf("resource %d: node %d starts at %v, first-in first-out gives %v", res, n, entry.start, want)
			}
			free = entry.end()
		}
		if tl.lists.summaries[res].lastEnd != free {
			t.Fatalf("resource %d: tail %v, expected %v", res, tl.lists.summaries[res].lastEnd, free)
		}
	}
}

// Two batches cross two devices in opposite directions, and each stands behind the
// other: they are put in line by what is there first.
func TestContradictingOrders(t *testing.T) {
	var tl timelines
	tl.initialize(2, 2, 2)
	reserveRuns(&tl, 0, 0, 0, 1)
	reserveRuns(&tl, 1, 0, 1, 0)
	for _, n := range []int32{tl.lists.reservationOf(0, 0, onDevice), tl.lists.reservationOf(1, 0, onDevice)} { // behind what is there already
		last := tl.lists.summaries[tl.lists.reservations[n].resource].last
		if last != n {
			tl.lists.unlink(n)
			tl.lists.linkAfter(n, last)
		}
		tl.toSettle = append(tl.toSettle, n, tl.lists.summaries[tl.lists.reservations[n].resource].first)
	}
	tl.settleAll()
	wholeTimelines(t, &tl)
	for b := range int32(2) {
		if got := starts(&tl, b, 2); got[0] != 0 || got[1] != tick {
			t.Errorf("batch %d starts at %v", b, got)
		}
	}
}

// What has come keeps its turn, although news of what came behind it may say that
// it was ready earlier.
func TestLineKeepsWhatHasCome(t *testing.T) {
	var tl timelines
	tl.initialize(2, 3, 2)
	reserveRuns(&tl, 0, 5*tick, 0, 1)
	reserveRuns(&tl, 1, 3*tick, 0, 1)
	reserveRuns(&tl, 2, 0, 1, 0)
	tl.rebuildOrders()
	wholeTimelines(t, &tl)
	for b, want := range [][2]time.Duration{{5 * tick, 6 * tick}, {6 * tick, 7 * tick}, {0, 7 * tick}} {
		if got := starts(&tl, int32(b), 2); got[0] != want[0] || got[1] != want[1] {
			t.Errorf("batch %d starts at %v, expected %v", b, got, want)
		}
	}
}
