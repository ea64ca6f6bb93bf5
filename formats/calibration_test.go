package formats

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCalibrationAt(t *testing.T) {
	c := Calibration{{.2, .5}, {.4, .7}, {.9, 1}}
	for raw, want := range map[float64]float64{0: .5, .2: .5, .39: .5, .4: .7, .89: .7, .9: 1, 1: 1} {
		if got := c.Calibrated(raw); got != want {
			t.Errorf("at %v: %v, expected %v", raw, got, want)
		}
	}
	if got := Calibration(nil).Calibrated(.3); got != .3 {
		t.Errorf("without steps: %v, expected .3", got)
	}
}

// A calibration that is valid never changes the order of certainties.
func TestCalibrationKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Calibration
		from, to := 0.0, 0.0
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			from += rapid.Float64Range(.01, .15).Draw(t, "from")
			to += rapid.Float64Range(0, .15).Draw(t, "to")
			c = append(c, CalibrationStep{from, to})
		}
		a, b := rapid.Float64Range(0, 1).Draw(t, "a"), rapid.Float64Range(0, 1).Draw(t, "b")
		if a > b {
			a, b = b, a
		}
		if c.Calibrated(a) > c.Calibrated(b) {
			t.Fatalf("%v: %v at %v, %v at %v", c, c.Calibrated(a), a, c.Calibrated(b), b)
		}
	})
}
