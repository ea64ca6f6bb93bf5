package fewdraws

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Check tests a property with so many draws, or as many as -rapid.checks or RAPID_CHECKS names.
func Check(t *testing.T, draws int, property func(*rapid.T)) {
	t.Helper()
	_, isAsked := os.LookupEnv("RAPID_CHECKS")
	flag.Visit(func(f *flag.Flag) { isAsked = isAsked || f.Name == "rapid.checks" })
	if f := flag.Lookup("rapid.checks"); !isAsked && f != nil {
		if err := f.Value.Set(strconv.Itoa(draws)); err != nil { // not flag.Set, after which it would count as asked for
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
	}
	rapid.Check(t, property)
}
