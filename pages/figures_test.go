package pages_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/pages"
)

// The sentence says what a comparison means: whether the difference may be chance, and what became of the tail.
func TestSentence(t *testing.T) {
	reportOf := func(attainment, low, high float64, p99 document.Micros) *formats.Report {
		r := &formats.Report{Counts: formats.Counts{Requests: 100, Attainment: attainment, AttainmentCI: &[2]float64{low, high}}}
		r.Latency.P99US = p99
		return r
	}
	first := reportOf(.99, .98, 1, 1000)
	for _, c := range []struct {
		second *formats.Report
		want   string
	}{
		{reportOf(.985, .97, .99, 1000), "promised has 99.00 % of its requests answered in time; in measured it is 98.50 % (-0.50 points), which may be chance, because the 95 % intervals overlap, and its p99 is 0.0 % higher."},
		{reportOf(.9, .89, .91, 2000), "which is worse by more than chance, because the 95 % intervals do not overlap, and its p99 is 100.0 % higher."},
		{reportOf(0, 0, .01, 0), "which is worse by more than chance, because the 95 % intervals do not overlap."},
	} {
		if got := pages.Sentence([]string{"promised", "measured"}, []*formats.Report{first, c.second}); !strings.HasSuffix(got, c.want) {
			t.Errorf("found %q, expected it to end with %q", got, c.want)
		}
	}
	if got, want := pages.Sentence([]string{"one"}, []*formats.Report{{}}), "In one there were no requests."; got != want {
		t.Errorf("found %q, expected %q", got, want)
	}
	if got, want := pages.Sentence([]string{"one"}, []*formats.Report{first}), "In one, 99.00 % of 100 requests were answered in time (95 % interval: 98.00 % to 100.00 %)."; got != want {
		t.Errorf("found %q, expected %q", got, want)
	}
}

// A figure has the same name in a CSV file and in a condition.
func TestCSVHasEveryFigure(t *testing.T) {
	r, err := formats.ReadReport("testdata/pool/measured.json")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := pages.WriteCSV(&out, pages.Rows("measured", r)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2+len(r.Models) || strings.Count(lines[0], ",") != 2+len(pages.Figures) || !strings.HasPrefix(lines[1], "measured,,,") {
		t.Errorf("found\n%s", out.String())
	}
}

// Whatever stands in a trace, reading and drawing it does not panic.
func FuzzTimeline(f *testing.F) {
	f.Add(`[{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"L4"}},{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"L4 0"}},{"ph":"X","name":"a","pid":0,"tid":0,"ts":1,"dur":5},{"ph":"C","name":"gear","pid":2,"ts":3,"args":{"value":1}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "trace.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		timeline, err := pages.ReadTimeline(path)
		if err != nil {
			return
		}
		r, err := formats.ReadReport("testdata/pool/measured.json")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pages.ReportPage(nil, []pages.Run{{Name: "a", Report: r, Timeline: timeline}}, pages.Table{}, nil); err != nil {
			t.Error(err)
		}
	})
}

// The row of all models has the largest SLO.
func TestAllModelsHaveTheLargestSLO(t *testing.T) {
	r := &formats.Report{Models: []formats.ModelReport{{Model: "a", SLOUS: 5e6}, {Model: "b", SLOUS: 9e6}, {Model: "c", SLOUS: 7e6}}}
	if rows := pages.Rows("r", r); rows[0].Model != "" || rows[0].SLO != 9e6 {
		t.Errorf("found %+v", rows[0])
	}
}

// A span of next to no time is drawn.
func TestShortestTraceIsDrawn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	text := `[{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"L4"}},{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"L4 0"}},{"ph":"X","name":"a","pid":0,"tid":0,"ts":0,"dur":5e-317}]`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	timeline, err := pages.ReadTimeline(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pages.ReportPage(nil, []pages.Run{{Name: "a", Report: &formats.Report{}, Timeline: timeline}}, pages.Table{}, nil); err != nil {
		t.Error(err)
	}
}

// The page shows models that only a later report has.
func TestModelsOfLaterReportsAreShown(t *testing.T) {
	model := func(name string) *formats.Report {
		counts, latency := formats.Counts{Requests: 1, Completed: 1, Attainment: 1}, formats.LatencySummary{P50US: 1e6, P90US: 1e6, P95US: 1e6, P99US: 1e6}
		return &formats.Report{Counts: counts, Latency: latency, Models: []formats.ModelReport{{Model: name, SLOUS: 2e6, Counts: counts, Latency: latency}}}
	}
	p, err := pages.ReportPage(nil, []pages.Run{{Name: "x", Report: model("a")}, {Name: "y", Report: model("later")}}, pages.Table{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, s := range p.Sections {
		for _, picture := range s.Pictures {
			titles = append(titles, picture.Title)
		}
	}
	if !slices.Contains(titles, "later") {
		t.Errorf("found the pictures %q", titles)
	}
}
