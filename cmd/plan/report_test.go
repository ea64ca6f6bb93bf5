package main

import (
	"slices"
	"testing"

	"inferplan/formats"
)

// A model has to reach the percentile that a simulation of the compared reports says, else 99 %,
// or what --attainment asks.
func TestMissedAttainmentsAreListed(t *testing.T) {
	model := func(name, percentile string, attainment float64) formats.ModelReport {
		return formats.ModelReport{Model: name, Percentile: percentile, Counts: formats.Counts{Requests: 100, Attainment: attainment}}
	}
	reports := []*formats.Report{
		{Models: []formats.ModelReport{model("a", "p95", .96), model("b", "", .985)}},
		{Models: []formats.ModelReport{model("a", "", .94), model("b", "", .99)}},
	}
	names := []string{"promised.json", "measured.json"}
	for attainment, want := range map[float64][]string{
		0:   {"promised: b answered 98.50 % in time, below 99.00 %", "measured: a answered 94.00 % in time, below 95.00 %"},
		.95: {"measured: a answered 94.00 % in time, below 95.00 %"},
	} {
		if got := missedTargets(names, reports, attainment); !slices.Equal(got, want) {
			t.Errorf("attainment %v: %q, expected %q", attainment, got, want)
		}
	}
}
