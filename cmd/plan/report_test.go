package main

import (
	"bytes"
	"slices"
	"strings"
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

// The latencies of a run that answered nothing are not compared.
func TestNothingAnsweredHasNoLatency(t *testing.T) {
	answered := &formats.Report{Latency: formats.LatencySummary{P50US: 1e6, P99US: 2e6}}
	slower := &formats.Report{Latency: formats.LatencySummary{P50US: 2e6, P99US: 2e6}}
	reports := []*formats.Report{answered, {}, slower}
	for _, r := range reports {
		r.Models = []formats.ModelReport{{Model: "a", Latency: r.Latency}}
	}
	names := []string{"promised.json", "none.json", "slower.json"}
	if got := medianWarnings(names, reports); len(got) != 1 || !strings.HasPrefix(got[0], "slower: the median of a is 100 % above that of promised. ") {
		t.Errorf("found %q", got)
	}
	slower.Source = "simulate"
	if got := medianWarnings(names, reports); len(got) != 0 {
		t.Errorf("a simulated report: found %q", got)
	}
	slower.Source = ""
	if rows := comparisonTable(names, reports).Rows; rows[1][9] != "" || rows[1][11] != "" || rows[2][9] != "+100.0 %" {
		t.Errorf("found %q", rows)
	}
}

// A model that only a later report has is in the table, without differences.
func TestModelsOfLaterReportsAreShown(t *testing.T) {
	reports := []*formats.Report{{Models: []formats.ModelReport{{Model: "a"}}}, {Models: []formats.ModelReport{{Model: "b"}, {Model: "a"}}}}
	var got []string
	for _, row := range comparisonTable([]string{"x.json", "y.json"}, reports).Rows {
		got = append(got, row[0]+"|"+row[1]+"|"+row[5])
	}
	if want := []string{"all|x|", "|y|+0.00 pt", "a|x|", "|y|+0.00 pt", "b|y|"}; !slices.Equal(got, want) {
		t.Errorf("found %q, expected %q", got, want)
	}
}

// Without requests, tables have a dash for the share in time and for latencies: no share was reached.
func TestTablesWithoutRequestsHaveDashes(t *testing.T) {
	none := formats.Counts{Attainment: 1, AttainmentCI: &[2]float64{0, 1}}
	report := &formats.Report{
		Counts: none, Models: []formats.ModelReport{{Model: "a", Counts: none}}, Plans: []formats.PlanReport{{Counts: none}},
		Curve:       []formats.LoadReport{{Load: 0.5, Attainment: 1, Models: []formats.ModelPoint{{Model: "a", Attainment: 1}}}},
		TokenReport: formats.TokenReport{Classes: []formats.ClassReport{{Class: "chat", Attainment: 1, Figure: formats.FigureE2E, Percentile: "p99", SLOUS: 1000}}},
	}
	var out bytes.Buffer
	if err := printReport(&printer{out: &out}, report); err != nil {
		t.Fatal(err)
	}
	for _, row := range comparisonTable([]string{"one", "two"}, []*formats.Report{report, report}).Rows {
		out.WriteString(strings.Join(row, " ") + "\n")
	}
	if text := out.String(); strings.Contains(text, "100.00 %") || !strings.Contains(text, "e2e p99: - of") {
		t.Error(text)
	}
}
