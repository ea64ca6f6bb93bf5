package drift

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
)

func TestRatesKeepTheirOrder(t *testing.T) {
	var r RateHistory
	if r.Add(3, time.Second); len(r.latest(0)) != 1 || len(r.latest(5)) != 1 {
		t.Fatalf("one second: %v", r.latest(0))
	}
	r.Add(30, 3*time.Second) // a loop that was held up
	r.Add(1, time.Second/2)
	for range 2 * maxIdleSeconds { // of a long night an evening is kept
		r.Add(0, time.Second)
	}
	r.Add(7, time.Second)
	want := append([]float32{3, 10, 10, 10, 2}, make([]float32, maxIdleSeconds)...)
	if want = append(want, 7); !slices.Equal(r.latest(0), want) {
		t.Errorf("%v, expected %v", r.latest(0), want)
	}
	if got := r.latest(2); !slices.Equal(got, []float32{0, 7}) {
		t.Errorf("the last two: %v", got)
	}
	r.Add(0, time.Hour) // one window that took long is no more than a night
	if n := len(r.latest(0)); n != len(want)+maxIdleSeconds {
		t.Errorf("%d seconds after an idle hour, expected %d", n, len(want)+maxIdleSeconds)
	}
	for i := range int64(maxRates + 10) {
		r.Add(i+1, time.Second)
	}
	got := r.latest(0)
	if len(got) != maxRates || got[0] != 11 || got[maxRates-1] != maxRates+10 || !slices.IsSorted(got) {
		t.Errorf("%d seconds from %v to %v, expected the last %d in order", len(got), got[0], got[len(got)-1], maxRates)
	}
}

// The notice's command brings the planner the rates in the order in which they
// came; what it says to write is a workload.
func TestNoticeCarriesTheRates(t *testing.T) {
	url := "http://127.0.0.1:8002/rates"
	p := gearPlan()
	p.Inputs = []formats.Input{{Role: "profile", Path: "p.json"}, {Role: "workload", Path: "../of/w.yaml"}}
	p.Seed = 7
	p.Options = document.NewValues(formats.PlanOptions(p.Kind))
	if err := errors.Join(p.Options.Set("max-batch", 4), p.Options.Set("slo", document.SLO{Duration: 300 * time.Millisecond})); err != nil {
		t.Fatal(err)
	}
	// Rates hover at an edge for a while, then lie beyond the plan's largest.
	var log bytes.Buffer
	var sent []float64
	d, total := NewRateDrift(p, Limit{Distance: .25, Windows: 20}, url, prometheus.NewRegistry()), int64(0)
	for i := range 40 {
		n := []int64{90, 110}[i%2]
		if i >= 20 {
			n = 290
		}
		total, sent = total+n, append(sent, float64(n))
		d.Window(time.Duration(i+1)*time.Second, total, slog.New(slog.NewTextHandler(&log, nil)))
	}
	notice := d.notice(url)
	for _, want := range []string{
		"type `curl -fsS 'http://127.0.0.1:8002/rates?last=40' -o ../of/rates.csv` in the plan's folder",
		"write under cascade in ../of/w.yaml `qps: {measured: rates.csv, max: 300, ranges: 3}`",
		"`plan solve --method gear --profile p.json --workload ../of/w.yaml --slo 300ms --max-batch 4 --seed 7 -o plan.json`",
	} {
		if !strings.Contains(notice, want) {
			t.Errorf("the notice lacks %q: %s", want, notice)
		}
	}
	if !strings.Contains(log.String(), "/rates?last=40") {
		t.Errorf("the log lacks the command: %s", log.String())
	}

	dir := t.TempDir()
	var text bytes.Buffer
	if err := d.Rates.WriteCSV(&text, 40); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "rates.csv")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := arrivals.PerSecond(file); err != nil || !slices.Equal(got, sent) {
		t.Errorf("%v %v, expected %v", got, err, sent)
	}
	_, rest, _ := strings.Cut(notice, "`qps: ")
	qps, _, _ := strings.Cut(rest, "`")
	w := filepath.Join(dir, "w.yaml")
	doc := "format: inferplan.workload/v1\ncascade:\n  family: [small, large]\n  slo: {latency: 400ms}\n  qps: " + qps + "\n"
	if err := os.WriteFile(w, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := formats.ReadWorkload(w); err != nil || formats.CascadeOf(got).QPS.MeasuredFile != "rates.csv" || formats.CascadeOf(got).QPS.Max != 300 || formats.CascadeOf(got).QPS.Ranges != 3 {
		t.Errorf("%+v %v", got, err)
	}

	// The report of a server that has ended has only the histogram to offer.
	r := formats.Report{Gears: &formats.GearReport{}}
	if d.Report(&r); len(r.Warnings) != 1 || strings.Contains(r.Warnings[0], "curl") || !strings.Contains(r.Warnings[0], "histogram: [") {
		t.Errorf("warnings %q", r.Warnings)
	}
}
