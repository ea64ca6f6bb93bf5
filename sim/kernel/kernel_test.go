package kernel_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/sim/kernel"
)

type event struct {
	at   time.Duration
	kind uint8
	seq  int64
}

func order(a, b event) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.seq, b.seq))
}

// The queue gives what a sorted list gives, under any mix of calls.
func TestQueueAgainstSortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q kernel.Queue[event]
		model := map[kernel.Handle]event{}
		pending := func() []kernel.Handle {
			var hs []kernel.Handle
			for h := range model {
				hs = append(hs, h)
			}
			slices.SortFunc(hs, func(a, b kernel.Handle) int { return order(model[a], model[b]) })
			return hs
		}
		seq := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 49).Draw(t, "clears") == 49 {
				q.Clear()
				clear(model)
			}
			hs := pending()
			if len(hs) > 0 {
				if first := *q.PeekPayload(); first.seq != model[hs[0]].seq {
					t.Fatalf("the next event is %+v, want %+v", first, model[hs[0]])
				}
			}
			op := rapid.IntRange(0, 5).Draw(t, "op")
			switch {
			case op <= 2 || len(hs) == 0:
				seq++
				e := event{time.Duration(rapid.IntRange(0, 20).Draw(t, "at")), uint8(rapid.IntRange(0, 3).Draw(t, "kind")), seq}
				h := q.Push(e.at, e.kind, e.seq, e)
				if _, twice := model[h]; twice {
					t.Fatalf("handle %d given twice", h)
				}
				model[h] = e
			case op == 3:
				at, kind, got := q.Pop()
				want := model[hs[0]]
				got.at = at
				if got != want || kind != want.kind {
					t.Fatalf("popped %+v of kind %d at %v, want %+v", got, kind, at, want)
				}
				delete(model, hs[0])
			case op == 4:
				h := rapid.SampledFrom(hs).Draw(t, "handle")
				e := model[h]
				e.at = time.Duration(rapid.IntRange(0, 20).Draw(t, "to"))
				q.Move(h, e.at)
				model[h] = e
			default:
				h := rapid.SampledFrom(hs).Draw(t, "handle")
				q.Remove(h)
				delete(model, h)
			}
			if q.Len() != len(model) {
				t.Fatalf("%d pending, want %d", q.Len(), len(model))
			}
		}
	})
}

func TestQueueAllocatesNothing(t *testing.T) {
	var q kernel.Queue[event]
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		q.Push(time.Duration(rng.IntN(1000)), 0, int64(i), event{})
	}
	if n := testing.AllocsPerRun(1000, func() {
		at, _, e := q.Pop()
		h := q.Push(at+time.Duration(rng.IntN(1000)), 1, e.seq, e)
		q.Move(h, at+500)
	}); n != 0 {
		t.Errorf("%v allocations per step, want none", n)
	}
}

// The bare loop: what any event costs before anything happens in it.
func BenchmarkBareLoop(b *testing.B) {
	var q kernel.Queue[event]
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		q.Push(time.Duration(rng.IntN(1000000)), 0, int64(i), event{})
	}
	b.ReportAllocs()
	for b.Loop() {
		at, kind, e := q.Pop()
		q.Push(at+time.Duration(rng.Uint64()&0xfffff), kind, e.seq, e)
	}
}
