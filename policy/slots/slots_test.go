package slots

import "testing"

// A freed slot is used again before a new one is made, and nothing is allocated then.
func TestTake(t *testing.T) {
	var list []string
	var free []int32
	for want := range int32(3) {
		if got := Take(&list, &free); got != want || len(list) != int(want)+1 {
			t.Fatalf("slot %d of %d, expected %d", got, len(list), want)
		}
	}
	free = append(free, 1, 0)
	for _, want := range []int32{0, 1, 3} {
		if got := Take(&list, &free); got != want {
			t.Fatalf("slot %d, expected %d", got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { free = append(free, Take(&list, &free)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
