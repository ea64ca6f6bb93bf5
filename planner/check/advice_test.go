package check

import (
	"strings"
	"testing"

	"inferplan/formats"
)

// A failure that may come of a busy machine says so; one that cannot, or a machine
// that was quiet, does not.
func TestAdviceOfABusyMachine(t *testing.T) {
	busy := []string{formats.BusyNote + "cpu-1: the whole model took 9 % longer"}
	for _, c := range []struct {
		name  string
		fails Comparison
		notes []string
		want  bool
	}{
		{"times, busy", Comparison{Failed: true, Noise: 0.03}, busy, true},
		{"times, quiet", Comparison{Failed: true, Noise: 0.03}, []string{"weights of a: random"}, false},
		{"cost, busy", Comparison{Failed: true}, busy, false},
		{"no failure, busy", Comparison{Noise: 0.03}, busy, false},
	} {
		r := &Result{Metrics: []Comparison{c.fails}}
		r.addAdvice(&formats.Profile{Notes: c.notes})
		if got := strings.Contains(strings.Join(r.Advice, "\n"), "--realtime --cuts"); got != c.want {
			t.Errorf("%s: %q", c.name, r.Advice)
		}
	}
}

func TestTimesAreShownInMilliseconds(t *testing.T) {
	c := &Comparison{Metric: "p99", Subject: "a", Unit: "us", Old: 3839.07, New: 60852.1, WorseBy: 14.85, Tolerance: 0.02}
	if got, want := c.FailureText(), "p99 of a: 60.8521 ms, was 3.83907 (+1485.00 %, allowed 2 %)"; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if old, now, unit := (&Comparison{Unit: "rps", Old: 1, New: 2}).FormattedValues(); old != "1" || now != "2" || unit != "rps" {
		t.Error(old, now, unit)
	}
}
