package fewdraws

import (
	"flag"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// defaultDraws is the number of draws that rapid makes if nothing else is asked for.
const defaultDraws = "100"

// Check tests a property with so many draws, or as many as -rapid.checks names.
func Check(t *testing.T, draws int, property func(*rapid.T)) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == defaultDraws {
		if err := flag.Set("rapid.checks", strconv.Itoa(draws)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set("rapid.checks", defaultDraws) })
	}
	rapid.Check(t, property)
}
