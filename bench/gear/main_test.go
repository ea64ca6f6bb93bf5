package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/bench/gear/published"
	"inferplan/bench/table"
)

func data(t *testing.T) string {
	dir := published.Dir()
	if _, err := os.Stat(filepath.Join(dir, "traces")); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no reference data: set INFERPLAN_DATA to the folder that holds traces/ (%v)", err)
	}
	return dir
}

// A table comes out of the data, with its files; what is kept is not measured
// again, not even after a line that was cut, and gives the same table.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-data", data(t), "-families", "llama4", "-tables", "spike", "-o", dir}
	once := func() (string, string) {
		var out, log bytes.Buffer
		if err := run(context.Background(), args, &out, &log); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		return out.String(), log.String()
	}
	first, log := once()
	for _, want := range []string{"**A spike under a latency SLO (figure 8)**", "planner", "MS+", "DynBa 70B", "Cocktail+"} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	if !strings.HasPrefix(log, "about ") || strings.HasPrefix(log, "about 0 ") {
		t.Errorf("no cost before: %s", log)
	}
	for _, name := range []string{"spike.csv", "timeline-spike-llama4.csv", "timeline-spike-llama4.svg"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || bytes.Count(text, []byte("\n")) < 4 {
			t.Errorf("%s: %v, %.200s", name, err, text)
		}
	}
	path := filepath.Join(dir, "results.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"key":"cut off`); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	again, log := once()
	if again != first || !strings.HasPrefix(log, "about 0 results") {
		t.Errorf("again: %s\n%s\nexpected\n%s", log, again, first)
	}
	if third, _ := once(); third != first {
		t.Errorf("a third time:\n%s\nexpected\n%s", third, first)
	}
}

// Results of another program are used, but that is said.
func TestRevision(t *testing.T) {
	if r := revision(); r == "" || r == "unknown" || r != revision() {
		t.Errorf("revision %q", r)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "results.jsonl"), []byte(`{"format":"inferplan.bench-gear/v1","revision":"old"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := run(context.Background(), []string{"-data", data(t), "-families", "llama4", "-tables", "spike", "-cost", "-o", dir}, &bytes.Buffer{}, &log); err != nil ||
		!strings.Contains(log.String(), "was begun by revision old") {
		t.Errorf("%v, %s", err, log.String())
	}
}

// A run that is stopped keeps what it has.
func TestStopped(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	log := writerFunc(func(p []byte) (int, error) {
		cancel() // as soon as the cost is told
		return len(p), nil
	})
	err := run(ctx, []string{"-data", data(t), "-families", "llama4", "-tables", "time", "-o", dir}, &bytes.Buffer{}, log)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if s, err := openStore(filepath.Join(dir, "results.jsonl"), false); err != nil || len(s.values) != 0 {
		t.Errorf("after that: %v, %v", s, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestErrors(t *testing.T) {
	empty, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "results.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`-tables: found "pies", expected some of gpus,methods,map,`: {"-tables", "pies"},
		`family "bert6": expected one of [bert5 llama4 imdb3]`:      {"-families", "bert6"},
		"-seeds 1 and -jobs 2: expected at least 2 and 1":           {"-seeds", "1", "-jobs", "2"},
		`found "more", expected only flags`:                         {"more"},
		"(or INFERPLAN_DATA)":                                       {"-data", empty},
		"expected the format inferplan.bench-gear/v1 (-fresh":       {"-data", "here", "-families", "llama4", "-o", dir},
	} {
		for i := range args {
			if args[i] == "here" {
				args[i] = data(t)
			}
		}
		if err := run(context.Background(), args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

// Families share a table: rows keep the families' order whoever ends first, and
// what others found stays where one fails.
func TestFamiliesTogether(t *testing.T) {
	for _, timed := range []bool{false, true} {
		b := &bench{runs: runs{jobs: 2}, families: []*published.Family{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
		lastEnded := make(chan struct{})
		got, err := b.together(func(_ *bench, f *published.Family, t *table.Table) error {
			switch {
			case f.Name == "a" && !timed:
				<-lastEnded
			case f.Name == "c":
				defer close(lastEnded)
			}
			t.Add(f.Name)
			t.Note("of %s", f.Name)
			if f.Name == "b" {
				return errors.New("no data")
			}
			return nil
		}, timed)
		if err == nil || err.Error() != "b: no data" {
			t.Errorf("timed %v: %v", timed, err)
		}
		if rows := fmt.Sprint(got.Rows, got.Notes); rows != "[[a] [b] [c]] [of a of b of c]" {
			t.Errorf("timed %v: %s", timed, rows)
		}
	}
}

// The table of goals has a line for every goal, kept or not reached, with the
// median of the times.
func TestGoalsTable(t *testing.T) {
	f := &published.Family{Name: "imdb3"}
	b := &bench{flags: new(flag.FlagSet), runs: runs{store: &store{values: map[string]json.RawMessage{}}, counting: map[string]bool{}, progress: &progress{}}}
	if err := b.goals(f, &table.Table{}); err != nil {
		t.Fatal(err)
	}
	if len(b.counting) != 3*8 {
		t.Errorf("%d goals, expected 24", len(b.counting))
	}
	for key := range b.counting {
		v := reachedGoal{OK: true, Value: .8123, Bound: .8234, Gap: .0111, Tried: .8133, CPU: []float64{.9, .1, .2}}
		if strings.Contains(key, "latency for 0.78/") {
			v = reachedGoal{CPU: []float64{.3}}
		}
		if err := b.store.put(key, v); err != nil {
			t.Fatal(err)
		}
	}
	b.counting = nil
	got := &table.Table{}
	if err := b.goals(f, got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 3*8 {
		t.Fatalf("%d rows, expected 24", len(got.Rows))
	}
	for i, want := range []string{"imdb3 2 accuracy ranges 0.8123 0.8234 0.8133 1.110 0.20 0", "imdb3 2 accuracy requests 0.8123 0.8234 0.8133 1.110 0.20 0",
		"imdb3 2 latency for 0.78 ranges no plan    0.30 ", "imdb3 2 devices for 0.78 ranges 0.8123 0.8234 0.8133  0.20 0"} {
		if row := strings.Join(got.Rows[i], " "); row != want {
			t.Errorf("row %d: %q, expected %q", i, row, want)
		}
	}
}
