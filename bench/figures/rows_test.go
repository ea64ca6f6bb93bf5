package figures_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/bench/figures"
)

// Rows show one figure, or the least, the most and the median of several. What an author wrote into a row stays.
func TestRenderRows(t *testing.T) {
	list := []figures.Figure{
		{Claim: "gain of a at 1", Asked: "at least 2", Measured: 3, Unit: "times", Holds: figures.Yes},
		{Claim: "gain of a at 2", Asked: "at least 2", Measured: 1.5, Unit: "times", Holds: figures.No},
		{Claim: "gain of a at 3", Asked: "at least 2", Measured: 2, Unit: "times", Holds: figures.Yes},
		{Claim: "share", Asked: "at most .1", Measured: .05, Unit: "share", Interval: &[2]float64{.04, .06}, Holds: figures.Yes},
		{Claim: "share of b | c", Measured: .25, Unit: "s"},
	}
	head, end := "<!-- rows of bench/x -->\n| what | asked | measured | holds | why |\n|---|---|---|---|---|\n", "<!-- end of rows -->\n"
	render := func(rows string) (string, error) {
		made, err := figures.Render(head+rows+end, func(string) ([]figures.Figure, error) { return list, nil })
		return strings.TrimSuffix(strings.TrimPrefix(made, head), end), err
	}
	for row, want := range map[string]string{
		"| gain of a at … | | | | it is 5 s late |\n": "| gain of a at … | at least 2 | **1.5 to 3 times, median 2** | **2 of 3** | it is 5 s late |\n",
		"| a <!-- gain of a at … → {1} x --> |\n":     "| a <!-- gain of a at … → {1} x --> | at least 2 | **1.5 to 3.0 x, median 2.0** | **2 of 3** |\n",
		"| share |\n": "| share | at most .1 | 0.05 (0.04 to 0.06) | yes |\n",
		"| name <!-- share → {low 0*100} to {high 0*100} % --> | | | | \\| |\n": "| name <!-- share → {low 0*100} to {high 0*100} % --> | at most .1 | 4 to 6 % | yes | \\| |\n",
		"| share of b \\| c | old | old | yes |\n":                              "| share of b \\| c |  | 0.25 s |  |\n",
	} {
		if found, err := render(row); err != nil || found != want {
			t.Errorf("%s: found %s, expected %s (%v)", row, found, want, err)
		}
		if found, _ := render(want); found != want {
			t.Errorf("made again: %s, expected %s", found, want)
		}
	}
	for _, row := range []string{"| none |\n", "no row\n", "| a … |\n", "|  | 1 |\n"} { // the third has figures of several units
		if found, err := render(row); err == nil {
			t.Errorf("%s is taken: %s", row, found)
		}
	}
	text := head + "| gain of a at … | at least 2 | 9 s | yes | it is 5 s late |\n" + end
	if found, want := figures.Prose(text), []string{"5 s"}; !slices.Equal(found, want) {
		t.Errorf("found %q in the prose, expected %q", found, want)
	}
	if shown := figures.ClaimsShown(text+"<!-- x: share -->.05<!-- end -->", "x", list); len(shown) != 4 || !shown["share"] || shown["share of b | c"] {
		t.Errorf("shown are %v", shown)
	}
}

// What falls short of what was asked stands in a document, in a table, a row or a sentence.
func TestWhatFallsShortIsShown(t *testing.T) {
	var paths []string
	for _, pattern := range []string{"*", "*/*"} {
		found, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pattern), "figures.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if filepath.Base(filepath.Dir(path)) != "results" {
				paths = append(paths, path)
			}
		}
	}
	if len(paths) < 17 {
		t.Fatalf("%d files", len(paths))
	}
	var pages []string
	for _, path := range documents(t) {
		if name := filepath.ToSlash(path); strings.Contains(name, "/docs/benchmarks") {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, string(text))
		}
	}
	short := 0
	for _, path := range paths {
		bench := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		list, err := figures.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]bool{}
		for _, text := range pages {
			for claim := range figures.ClaimsShown(text, bench, list) {
				shown[claim] = true
			}
		}
		for _, f := range list {
			if f.Holds != figures.No && f.Holds != figures.Partly {
				continue
			}
			short++
			if !shown[f.Claim] {
				t.Errorf("bench/%s: %q falls short of %s and stands in no page of the benchmarks", bench, f.Claim, f.Asked)
			}
		}
	}
	if short < 20 {
		t.Errorf("%d figures fall short: not all were seen", short)
	}
}
