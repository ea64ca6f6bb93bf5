package slots_test

import (
	"testing"

	"inferplan/policy/slots"
)

// A ring gives its values in the order in which they were added, also when it wraps around and grows in between.
func TestRingIsFirstInFirstOut(t *testing.T) {
	var ring slots.Ring[int]
	added, popped := 0, 0
	for round := range 60 {
		for range round % 9 { // more come than go
			*ring.Add() = added
			added++
		}
		for range min(round%7, ring.Len) {
			if value := *ring.Pop(); value != popped {
				t.Fatalf("found %d, expected %d", value, popped)
			}
			popped++
		}
		if ring.Len != added-popped {
			t.Fatalf("found a length of %d, expected %d", ring.Len, added-popped)
		}
		for i := range ring.Len {
			if value := *ring.At(i); value != popped+i {
				t.Fatalf("at %d found %d, expected %d", i, value, popped+i)
			}
		}
	}
	if ring.Len <= 16 {
		t.Fatalf("%d values at the end, expected more than the ring has room for at first", ring.Len)
	}
}

// A ring with room for all entries that wait at once allocates nothing.
func TestRingAllocatesOnlyToGrow(t *testing.T) {
	var ring slots.Ring[int]
	for range 20 {
		ring.Add()
	}
	if allocations := testing.AllocsPerRun(100, func() { ring.Pop(); ring.Add() }); allocations > 0 {
		t.Errorf("found %v allocations, expected none", allocations)
	}
}
