package reserve

import (
	"testing"
	"time"
)

const tick = time.Millisecond

// way enters a batch's reservations into timelines, each behind all that is there:
// a run of one tick on each resource.
func way(t *timelines, batch int32, ready time.Duration, resources ...int32) {
	for h, res := range resources {
		n := t.node(batch, int16(h), run)
		t.nodes[n] = node{ready: ready, start: max(ready, t.spans[res].tail), dur: tick, prev: -1, next: -1, res: res, arrived: h == 0}
		t.linkAfter(n, t.spans[res].last)
		ready = t.nodes[n].end()
	}
}

// starts are those of a batch's runs.
func starts(t *timelines, batch int32, hops int16) []time.Duration {
	var out []time.Duration
	for h := range hops {
		out = append(out, t.nodes[t.node(batch, h, run)].start)
	}
	return out
}

func wholeTimelines(t *testing.T, tl *timelines) {
	t.Helper()
	for res := range tl.spans {
		free := tl.floors[res]
		for n := tl.spans[res].head; n >= 0; n = tl.nodes[n].next {
			nd := &tl.nodes[n]
			if want := max(nd.ready, free); nd.start != want {
				t.Fatalf("resource %d: node %d starts at %v, first-in first-out gives %v", res, n, nd.start, want)
			}
			free = nd.end()
		}
		if tl.spans[res].tail != free {
			t.Fatalf("resource %d: tail %v, expected %v", res, tl.spans[res].tail, free)
		}
	}
}

// Two batches cross two devices in opposite directions, and each stands behind the
// other: they are put in line by what is there first.
func TestContradictingOrders(t *testing.T) {
	var tl timelines
	tl.init(2, 2, 2)
	way(&tl, 0, 0, 0, 1)
	way(&tl, 1, 0, 1, 0)
	for _, n := range []int32{tl.node(0, 0, run), tl.node(1, 0, run)} { // behind what is there already
		last := tl.spans[tl.nodes[n].res].last
		if last != n {
			tl.unlink(n)
			tl.linkAfter(n, last)
		}
		tl.work = append(tl.work, n, tl.spans[tl.nodes[n].res].head)
	}
	tl.drain()
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
	tl.init(2, 3, 2)
	way(&tl, 0, 5*tick, 0, 1)
	way(&tl, 1, 3*tick, 0, 1)
	way(&tl, 2, 0, 1, 0)
	tl.rebuild()
	wholeTimelines(t, &tl)
	for b, want := range [][2]time.Duration{{5 * tick, 6 * tick}, {6 * tick, 7 * tick}, {0, 7 * tick}} {
		if got := starts(&tl, int32(b), 2); got[0] != want[0] || got[1] != want[1] {
			t.Errorf("batch %d starts at %v, expected %v", b, got, want)
		}
	}
}
