package planner

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
)

// Shares of measured rates are of requests, weights of those that come under a
// gear; the highest rate is the peak.
func TestMeasuredRates(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "qps.csv"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("second,count\n0,100\n1,100\n2,100\n4,700\n")
	in := threeSizes(1)
	in.WorkloadDir = dir
	formats.CascadeOf(in.Workload).QPS = formats.CascadeQPS{Measured: "qps.csv", Ranges: 2}
	res, err := Solve(context.Background(), in, Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := formats.GearOf(res.Plan)
	if g.Weights != "measured" || g.MaxQPS != 700 || len(g.Gears) != 2 || math.Abs(g.Gears[0].RateShare-.3) > 1e-12 || math.Abs(g.Gears[1].RateShare-.7) > 1e-12 {
		t.Errorf("weights %s up to %v: %+v", g.Weights, g.MaxQPS, g.Gears)
	}
	// The faster gear is in force a window after the rate has risen: a tenth of 700.
	if w := g.Gears[0].Weight; math.Abs(w-.37) > .01 || math.Abs(w+g.Gears[1].Weight-1) > 1e-12 {
		t.Errorf("weights %v and %v, expected .37 and .63", w, g.Gears[1].Weight)
	}
	if !slices.ContainsFunc(res.Plan.Assumptions, func(a string) bool { return strings.Contains(a, "highest measured rate") }) {
		t.Errorf("no assumption about the peak: %q", res.Plan.Assumptions)
	}
	formats.CascadeOf(in.Workload).QPS = formats.CascadeQPS{Measured: "qps.csv", Max: 400}
	if res, err = Solve(context.Background(), in, Options{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(formats.GearOf(res.Plan).Gears); n != 10 || !slices.ContainsFunc(res.Plan.Warnings, func(a string) bool { return strings.Contains(a, "above max 400") }) {
		t.Errorf("%d ranges, warnings %q", n, res.Plan.Warnings)
	}
	for text, want := range map[string]string{"second,count\n0,0\n": "no request", "second,count\n0,x\n": "qps.csv:2"} {
		write(text)
		formats.CascadeOf(in.Workload).QPS = formats.CascadeQPS{Measured: "qps.csv"}
		if _, err := Solve(context.Background(), in, Options{}, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q", text, err, want)
		}
	}
}
