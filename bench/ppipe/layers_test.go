package main

import (
	"regexp"
	"strconv"
	"testing"
)

// A model may be cut after any layer, so no choice of blocks has a higher bound.
func TestBlocksBelowLayers(t *testing.T) {
	if testing.Short() {
		t.Skip("leave out -short to run it, as make test does without the race detector")
	}
	text := made(t, "-tables", "blocks", "-cases", "^layers/HC1/fcn/2$", "-time-limit", "0s")
	rows := regexp.MustCompile(`(?m)^layers/\S+ .*? {2,}(\d+\.\d+) +([+-]\d+\.\d+) % {2,}`).FindAllStringSubmatch(text, -1)
	if want := len(granularities()); len(rows) != want {
		t.Fatalf("%d rows, expected %d:\n%s", len(rows), want, text)
	}
	fewer := 0
	for _, row := range rows {
		got, _ := strconv.ParseFloat(row[1], 64)
		if all, _ := strconv.ParseFloat(rows[0][1], 64); got > all+0.011 || got < 0.8*all {
			t.Errorf("bound %v of %q, %v of layers", got, row[0], all)
		} else if got < all-0.011 {
			fewer++
		}
	}
	if fewer == 0 {
		t.Errorf("no choice of blocks costs anything: are they kept to?\n%s", text)
	}
}
