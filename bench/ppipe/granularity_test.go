package main

import (
	"strconv"
	"testing"
)

// A model may be cut after any layer, so no choice of blocks has a higher bound.
func TestBlocksBelowLayers(t *testing.T) {
	if testing.Short() {
		t.Skip("leave out -short to run it, as make test does without the race detector")
	}
	rows := measured(t, "blocks", "^layers/HC1/fcn/2$")
	if len(rows) != len(granularities) {
		t.Fatalf("%d rows, expected %d: %v", len(rows), len(granularities), rows)
	}
	fewer := 0
	all, _ := strconv.ParseFloat(rows[0][2], 64)
	for _, row := range rows {
		got, err := strconv.ParseFloat(row[2], 64)
		if err != nil || got > all+0.011 || got < 0.8*all {
			t.Errorf("bound %v of %q, %v of layers", got, row, all)
		} else if got < all-0.011 {
			fewer++
		}
	}
	if fewer == 0 {
		t.Errorf("no choice of blocks costs anything: are they kept to? %v", rows)
	}
}
