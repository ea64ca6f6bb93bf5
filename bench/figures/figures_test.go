package figures_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/bench/figures"
)

var writeDocs = flag.Bool("write-docs", false, "make tables and insertions of documents again")

// documents are all documents that may show figures.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/benchmarks/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	if len(paths) < 25 {
		t.Fatalf("%d documents", len(paths))
	}
	return paths
}

// Documents say what the files say. `make docs` makes them say it.
func TestDocumentsShowTheFigures(t *testing.T) {
	shown := 0
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		made, err := figures.Render(string(text), func(bench string) ([]figures.Figure, error) {
			shown++
			list, err := figures.Read(filepath.Join("..", bench, "figures.json"))
			if err == nil && len(list) == 0 {
				err = fmt.Errorf("bench/%s has no figures", bench)
			}
			return list, err
		})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if made == string(text) {
			continue
		} else if !*writeDocs {
			t.Errorf("%s does not show what the files say: make docs", path)
		} else if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
			t.Error(err)
		}
	}
	if shown < 60 {
		t.Errorf("%d figures and tables are shown", shown)
	}
}

// Tables of figures have all columns, and a reason for what falls short.
func TestShownTablesAreComplete(t *testing.T) {
	for _, bench := range []string{"attack", "exported"} {
		list, err := figures.Read(filepath.Join("..", bench, "figures.json"))
		if err != nil || len(list) == 0 {
			t.Fatalf("%d figures, %v", len(list), err)
		}
		for _, f := range list {
			if f.Claim == "" || f.Source == "" || f.Command == "" || f.Commit == "" || f.Machine == "" {
				t.Errorf("bench/%s/figures.json: incomplete: %+v", bench, f)
			}
			if (f.Holds == figures.No || f.Holds == figures.Partly) && f.Note == "" {
				t.Errorf("bench/%s/figures.json: %q falls short without a reason", bench, f.Claim)
			}
		}
	}
}

// converted are the documents whose measured numbers are all made from figures, each with the settings and limits in its prose that have a unit.
// The list only grows.
var converted = map[string][]string{
	"README.md":                   {"80 %", "1 s", "49%", "49%"}, // load and SLO of the demo, widths of pictures
	"docs/benchmarks.md":          nil,
	"docs/benchmarks/attack.md":   {"2 MB", "40 ns", "1 ms", "5 s", "20 s", "60 MB", "30 s", "256 MiB", "100 ms", "1 KiB", "132 requests/s", "70 %"},
	"docs/benchmarks/exported.md": {"3 GiB", "30 s"},
	"docs/benchmarks/verdicts.md": {"10 s", "10 s", "80 hours"},
}

// A number with a unit is made from a figure, or it is a setting.
func TestNumbersAreMadeFromFigures(t *testing.T) {
	if len(converted) < 5 {
		t.Errorf("%d documents are converted, five were", len(converted))
	}
	for path, settings := range converted {
		for _, number := range figures.Prose(read(t, path)) {
			if i := slices.Index(settings, number); i >= 0 {
				settings = slices.Delete(settings, i, i+1)
			} else {
				t.Errorf("%s: %q stands in the prose: insert a figure (bench/figures/insert.go), or name it as a setting here", path, number)
			}
		}
		for _, number := range settings {
			t.Errorf("%s: no setting of %q", path, number)
		}
	}
}

func TestRender(t *testing.T) {
	list := []figures.Figure{
		{Claim: "median of a", Measured: .0123456, Unit: "share", Interval: &[2]float64{.01, .02}},
		{Claim: "median", Measured: 90, Unit: "s"},
		{Claim: "a | b", Measured: 3},
		{Claim: "c --d", Measured: 4},
		{Claim: "next to nothing", Measured: -.001},
	}
	render := func(text string) (string, error) {
		return figures.Render(text, func(bench string) ([]figures.Figure, error) {
			if bench != "x/y" {
				return nil, errors.New("no such bench")
			}
			return list, nil
		})
	}
	for text, want := range map[string]string{
		"<!-- x/y: of a -->old<!-- end -->":                                                       "<!-- x/y: of a -->0.01235 share<!-- end -->",
		"| <!-- x/y: median -->1 s<!-- end -->, 2 |":                                              "| <!-- x/y: median -->90 s<!-- end -->, 2 |",
		"<!-- x/y: of a → {1*100} % ({low 0*100} to {high 0*100}) --><!-- end -->":                "<!-- x/y: of a → {1*100} % ({low 0*100} to {high 0*100}) -->1.2 % (1 to 2)<!-- end -->",
		"<!-- x/y: median → {1/60} minutes -->?<!-- end --> <!-- x/y: of a → {0} --><!-- end -->": "<!-- x/y: median → {1/60} minutes -->1.5 minutes<!-- end --> <!-- x/y: of a → {0} -->0<!-- end -->",
		"<!-- x/y: of a → {+1*100} --><!-- end -->":                                               "<!-- x/y: of a → {+1*100} -->+1.2<!-- end -->",
		"<!-- x/y: next to → {2} % --><!-- end -->":                                               "<!-- x/y: next to → {2} % -->0.00 %<!-- end -->",
		"<!-- a comment --> text":                                                                 "<!-- a comment --> text",
	} {
		if found, err := render(text); err != nil || found != want {
			t.Errorf("%s: found %s, expected %s (%v)", text, found, want, err)
		}
		if found, _ := render(want); found != want {
			t.Errorf("made again: %s, expected %s", found, want)
		}
	}
	for _, text := range []string{"<!-- x/y: m -->1<!-- end -->", "<!-- x/y: none -->1<!-- end -->", "<!-- x/y: c --d -->1<!-- end -->", "<!-- x: median -->1<!-- end -->", "<!-- x/y: a | b → {low 1} -->1<!-- end -->"} {
		if found, err := render(text); err == nil {
			t.Errorf("%s is taken: %s", text, found)
		}
	}
}

func TestProse(t *testing.T) {
	text := "It takes 1.5 s, or 20 % of <!-- x: a -->3 ms<!-- end -->, of 5 devices.\n| at most 7 s | .5 MiB, [8 s](a-9-s) |\n\n    sleep 10s\n\n`--for 11 s`\n```\n12 s\n```\n1,300 rps.\n"
	if found, want := figures.Prose(text), []string{"1.5 s", "20 %", ".5 MiB", "8 s", "1,300 rps"}; !slices.Equal(found, want) {
		t.Errorf("found %q, expected %q", found, want)
	}
}

// A run replaces figures by claim. Of its command those that it does not measure go, of others
// they stay.
func TestPutReplacesWhatItsCommandMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	put := func(command string, claims ...string) {
		t.Helper()
		var list []figures.Figure
		for _, claim := range claims {
			list = append(list, figures.Figure{Claim: claim, Measured: float64(len(claims)), Asked: figures.AskedShown, Holds: figures.Yes})
		}
		if err := figures.Put(path, command, list...); err != nil {
			t.Fatal(err)
		}
	}
	found := func() string {
		t.Helper()
		list, err := figures.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range list {
			if f.Holds != "" {
				t.Errorf("%q has a verdict", f.Claim)
			}
			out = append(out, fmt.Sprintf("%s of %s %g", f.Claim, f.Command, f.Measured))
		}
		return strings.Join(out, "; ")
	}
	put("whole", "a", "b", "c")
	put("part", "d")
	put("part", "b", "e") // d goes; b is the part's now
	if got, want := found(), "a of whole 3; b of part 2; c of whole 3; e of part 2"; got != want {
		t.Errorf("found %s, expected %s", got, want)
	}
	put("whole", "a", "b") // c goes
	if got, want := found(), "a of whole 2; b of whole 2; e of part 2"; got != want {
		t.Errorf("found %s, expected %s", got, want)
	}
}

func TestPutAndTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	first := figures.Figure{Claim: "a", Source: "s", Measured: 1, Holds: figures.No, Note: "why"}
	second := figures.Figure{Claim: "b", Source: "s", Asked: "at most 2", Measured: 1.23456, Interval: &[2]float64{1, 2}, Unit: "s", Holds: figures.Partly}
	if err := figures.Put(path, "c", first, second); err != nil {
		t.Fatal(err)
	}
	first.Measured, first.Holds, first.Note, first.Command = 3, figures.Yes, "", "own"
	if err := figures.Put(path, "d", first); err != nil {
		t.Fatal(err)
	}
	list, err := figures.Read(path)
	if err != nil || len(list) != 2 || list[0].Measured != 3 || list[0].Commit == "" || list[0].Command != "own" || list[1].Holds != figures.Partly {
		t.Fatalf("%+v, %v", list, err)
	}
	want := "| what | asked | measured | holds |\n|---|---|---|---|\n| a |  | 3 | yes |\n| b | at most 2 | **1.235 s (1 to 2)** | **partly** |\n"
	if got := figures.Table(list); got != want {
		t.Errorf("found\n%sexpected\n%s", got, want)
	}
	if err := os.WriteFile(path, []byte(`[{"holds":"maybe"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := figures.Read(path); err == nil || !strings.Contains(err.Error(), "maybe") {
		t.Errorf("a verdict that is none: %v", err)
	}
}
