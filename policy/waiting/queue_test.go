package waiting

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The queue gives what a sorted list gives, whatever is put in and taken out.
func TestQueueAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var list []Request
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				if q.Len > 0 {
					if got := *q.Pop(); got != list[0] {
						t.Fatalf("popped %+v, want %+v", got, list[0])
					}
					list = list[1:]
				}
			case 1:
				req := int32(rapid.IntRange(0, i).Draw(t, "req"))
				at := slices.IndexFunc(list, func(r Request) bool { return r.Req == req })
				if got := q.Remove(req); got != (at >= 0) {
					t.Fatalf("removing %d: %v", req, got)
				}
				if at >= 0 {
					list = slices.Delete(list, at, at+1)
				}
			case 2:
				if n := len(list); n > 0 {
					if got := q.PopLast(); got != list[n-1] {
						t.Fatalf("popped %+v from the end, want %+v", got, list[n-1])
					}
					list = list[:n-1]
				}
			default:
				r := Request{Deadline: time.Duration(rapid.IntRange(0, 20).Draw(t, "deadline")), ArrivedAt: time.Duration(i), Req: int32(i)}
				q.Insert(r)
				list = append(list, r)
				slices.SortStableFunc(list, func(a, b Request) int { return int(a.Deadline - b.Deadline) })
			}
			if q.Len != len(list) {
				t.Fatalf("%d wait, want %d", q.Len, len(list))
			}
		}
		for i := range list {
			if *q.At(i) != list[i] {
				t.Fatalf("at %d: %+v, want %+v", i, *q.At(i), list[i])
			}
		}
	})
}
