package figures_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/bench/figures"
)

// Documents say what the files say.
func TestDocumentsShowTheFigures(t *testing.T) {
	for _, bench := range []string{"attack", "exported"} {
		document := filepath.Join("..", "..", "docs", "benchmarks", bench+".md")
		list, err := figures.Read(filepath.Join("..", bench, "figures.json"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		table, ok := figures.Shown(string(text), bench)
		if want := figures.Table(list); !ok || len(list) == 0 || table != want {
			t.Errorf("%s does not show bench/%s/figures.json; expected\n%s", document, bench, want)
		}
		for _, f := range list {
			if f.Claim == "" || f.Source == "" || f.Command == "" || f.Commit == "" || f.Machine == "" {
				t.Errorf("bench/%s/figures.json: incomplete: %+v", bench, f)
			}
			if f.Holds != figures.Yes && f.Note == "" {
				t.Errorf("bench/%s/figures.json: %q falls short without a reason", bench, f.Claim)
			}
		}
	}
}

func TestPutReplacesByClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	first := figures.Figure{Claim: "a", Source: "s", Measured: 1, Holds: figures.No, Note: "why", Command: "c"}
	second := figures.Figure{Claim: "b", Source: "s", Asked: "at most 2", Measured: 1.23456, Interval: &[2]float64{1, 2}, Unit: "s", Holds: figures.Partly, Command: "c"}
	if err := figures.Put(path, first, second); err != nil {
		t.Fatal(err)
	}
	first.Measured, first.Holds, first.Note = 3, figures.Yes, ""
	if err := figures.Put(path, first); err != nil {
		t.Fatal(err)
	}
	list, err := figures.Read(path)
	if err != nil || len(list) != 2 || list[0].Measured != 3 || list[0].Commit == "" || list[1].Holds != figures.Partly {
		t.Fatalf("%+v, %v", list, err)
	}
	want := "| what | asked | measured | holds |\n|---|---|---|---|\n| a |  | 3 | yes |\n| b | at most 2 | **1.235 s (1 to 2)** | **partly** |\n"
	if got := figures.Table(list); got != want {
		t.Errorf("found\n%sexpected\n%s", got, want)
	}
	doc := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(doc, []byte("before\n<!-- figures of bench/x -->\nold\n<!-- end of figures -->\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := figures.Show(doc, "x", list); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(doc)
	if table, ok := figures.Shown(string(text), "x"); err != nil || !ok || table != want || !strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") {
		t.Errorf("%s, %v", text, err)
	}
	if err := figures.Show(doc, "y", list); err == nil {
		t.Error("a document without a place is taken")
	}
	if err := os.WriteFile(path, []byte(`[{"holds":"maybe"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := figures.Read(path); err == nil || !strings.Contains(err.Error(), "maybe") {
		t.Errorf("a verdict that is none: %v", err)
	}
}
