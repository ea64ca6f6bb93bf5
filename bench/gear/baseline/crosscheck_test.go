package baseline

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"inferplan/bench/gear/published"
)

// Front, bounds, planned accuracy and traces of the cross-check's notes (sections
// 1, 3, 5 and 9) are met within their tolerances, or bettered. make bench-gear
// prints every figure (-tables crosscheck). INFERPLAN_LONG=1 adds large grids.
func TestCrossCheck(t *testing.T) {
	for _, c := range []struct {
		family  string
		figures int
	}{{"bert5", 44}, {"llama4", 23}, {"imdb3", 14}} {
		t.Run(c.family, func(t *testing.T) {
			f, err := published.Load(c.family, published.Dir())
			if errors.Is(err, fs.ErrNotExist) {
				t.Skipf("no reference data: set INFERPLAN_DATA to the folder that holds traces/ and cascade/ (%v)", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			list, err := CrossCheck(context.Background(), f, os.Getenv("INFERPLAN_LONG") != "")
			if err != nil {
				t.Fatal(err)
			}
			if len(list) < c.figures {
				t.Errorf("%d figures, expected at least %d", len(list), c.figures)
			}
			for _, one := range list {
				switch {
				case one.Better:
					t.Logf("better: %s: %s, in the notes %s", one.What, one.Ours, one.Notes)
				case !one.OK:
					t.Errorf("%s: %s, in the notes %s, tolerance %s", one.What, one.Ours, one.Notes, one.Tolerance)
				}
			}
		})
	}
}
