package fewdraws

import (
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// Few draws are made unless -rapid.checks names a number, also if it names the default of rapid.
func TestDrawsAreThoseAskedFor(t *testing.T) {
	isAsked := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { isAsked = isAsked || f.Name == "rapid.checks" })
	if isAsked {
		t.Skip("a number of draws is asked for")
	}
	draws := func() (count int) {
		Check(t, 3, func(*rapid.T) { count++ })
		return count
	}
	for range 2 { // the second call is not held for one with a number
		count := 0
		t.Run("", func(t *testing.T) { Check(t, 3, func(*rapid.T) { count++ }) })
		if count != 3 {
			t.Errorf("%d draws instead of 3", count)
		}
	}
	if err := flag.Set("rapid.checks", "100"); err != nil { // from here on it is asked for
		t.Fatal(err)
	}
	if n := draws(); n != 100 {
		t.Errorf("%d draws instead of 100", n)
	}
}
