package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/bench/figures"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
)

// data returns the folder of reference data, or skips the test.
func data(t *testing.T) string {
	dir := published.Dir()
	if _, err := os.Stat(filepath.Join(dir, "traces")); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no reference data: set INFERPLAN_DATA to the folder that holds traces/ (%v)", err)
	}
	return dir
}

// inRun does something in a run of a part, which keeps results in a folder, and returns the figures that it states.
func inRun(ctx context.Context, folder string, do func(r *instrument.Run, t *instrument.Table) error) ([]figures.Figure, error) {
	i := instrument.Instrument{Name: "gear", Keeps: true, Parts: []instrument.Part{{Name: "part", Measure: do}}}
	file := filepath.Join(folder, "figures.json")
	if err := i.Run(ctx, []string{"-keep", folder, "-figures", file}, &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		return nil, err
	}
	return figures.Read(file)
}

// A table comes out of the data, with its picture; what is kept is not measured again and gives the same table.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-data", data(t), "-families", "llama4", "-parts", "spike", "-keep", dir}
	once := func() (table string, results []byte) {
		var out, log bytes.Buffer
		if err := (&bench{}).instrument().Run(t.Context(), args, &out, &log); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		results, err := os.ReadFile(filepath.Join(dir, "results.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), results
	}
	first, kept := once()
	for _, want := range []string{"**A spike under a latency SLO (figure 8)**", "planner", "MS+", "DynBa 70B", "Cocktail+"} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	for name, want := range map[string]string{"spike.csv": "llama4,MS+,4,", "timeline-spike-llama4.svg": "planner, 2 devices"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %.200s", name, err, text)
		}
	}
	if again, results := once(); again != first || !bytes.Equal(results, kept) {
		t.Errorf("again:\n%s\nexpected\n%s", again, first)
	}
}

func TestErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`family "bert6": expected one of [bert5 llama4 imdb3]`: {"-families", "bert6"},
		"-trials 0 and -draws 5: expected at least 1":          {"-trials", "0"},
		"(or INFERPLAN_DATA)":                                  {"-data", t.TempDir()},
		"found yelp3, expected some of [bert5 llama4 imdb3]":   {"-data", data(t), "-families", "yelp3", "-parts", "time"},
	} {
		err := (&bench{}).instrument().Run(t.Context(), append(args, "-keep", t.TempDir()), &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

// The table of goals has a line for every goal, reached or not, with the median of the times.
func TestGoalsTable(t *testing.T) {
	got := &instrument.Table{}
	list, err := inRun(t.Context(), t.TempDir(), func(r *instrument.Run, _ *instrument.Table) error {
		f := &published.Family{Name: "imdb3"}
		for _, c := range goalCases[f.Name] {
			for _, g := range goalsOn(f, c.devices, c.targets) {
				v := &reachedGoal{OK: true, Value: .8123, Bound: .8234, Gap: .0111, Tried: .8133, CPU: []float64{.9, .1, .2}}
				if strings.Contains(g.name, "latency for 0.78") {
					v = &reachedGoal{CPU: []float64{.3}}
				}
				if _, err := instrument.Measured(r, fmt.Sprintf("%s/goal/%d/%s/%s", f.Name, c.devices, g.name, g.over), func() (*reachedGoal, error) { return v, nil }); err != nil {
					return err
				}
			}
		}
		return goals(r, f, got)
	})
	if err != nil || len(got.Rows) != 3*8 {
		t.Fatalf("%v, %d rows, expected 24", err, len(got.Rows))
	}
	for i, want := range []string{"imdb3 2 accuracy ranges 0.8123 0.8234 0.8133 1.110 0.20 0", "imdb3 2 accuracy requests 0.8123 0.8234 0.8133 1.110 0.20 0",
		"imdb3 2 latency for 0.78 ranges no plan    0.30 0", "imdb3 2 devices for 0.78 ranges 0.8123 0.8234 0.8133  0.20 0"} {
		if row := strings.Join(got.Rows[i], " "); row != want {
			t.Errorf("row %d: %q, expected %q", i, row, want)
		}
	}
	if len(list) != 1 || list[0].Measured != .3 || list[0].Holds != figures.Yes || list[0].Note != "24 plans, median of 3 each" {
		t.Errorf("figures %+v", list)
	}
}
