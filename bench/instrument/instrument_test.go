package instrument_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
)

// squares is an instrument that counts how often it measures.
func squares(measured *int, failing bool) *instrument.Instrument {
	limit := 0.0
	square := func(r *instrument.Run, t *instrument.Table) error {
		t.Columns = []string{"n", "square"}
		for n := range 3 {
			v, err := instrument.Measured(r, fmt.Sprint("square of ", n), func() (float64, error) {
				*measured++
				return float64(n * n), nil
			})
			if err != nil {
				return err
			}
			t.Add(n, v)
			if failing && n == 1 {
				return errors.New("broken")
			}
			r.AtMost(fmt.Sprintf("square of %d", n), "arithmetic", limit, "", v)
		}
		return r.WriteCSV("squares", t)
	}
	return &instrument.Instrument{
		Name: "rates", Keeps: true, Strict: true,
		Flags: func(f *flag.FlagSet) { f.Float64Var(&limit, "limit", 4, "largest square") },
		Parts: []instrument.Part{
			{Name: "squares", Title: "Squares", Measure: square},
			{Name: "cubes", Group: "powers", Title: "Cubes", OnRequest: true, Measure: func(r *instrument.Run, t *instrument.Table) error {
				r.Exactly("cube of 2", "arithmetic", 8, "", 8)
				return nil
			}},
		},
	}
}

// A run prints its table and puts its figures; the next one measures nothing again, unless it is asked to.
func TestRunKeepsWhatItMeasured(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "figures.json")
	measured := 0
	run := func(args ...string) (string, error) {
		var out, log bytes.Buffer
		err := squares(&measured, false).Run(context.Background(), append([]string{"-keep", dir, "-figures", file}, args...), &out, &log)
		return out.String(), err
	}
	for _, step := range []struct {
		args []string
		want int
	}{{nil, 3}, {nil, 3}, {[]string{"-fresh"}, 6}, {[]string{"-kept-by", "another"}, 9}, {[]string{"-parts", "powers"}, 9}} {
		out, err := run(step.args...)
		if err != nil {
			t.Fatal(err)
		}
		if measured != step.want {
			t.Errorf("%v: measured %d times, expected %d", step.args, measured, step.want)
		}
		if step.args == nil && (!strings.Contains(out, "| 2 | 4      |") || !strings.Contains(out, "**Squares** (`make bench NAME=rates ARGS='-parts squares'`)")) {
			t.Errorf("found the table\n%s", out)
		}
	}
	list, err := figures.Read(file)
	if err != nil || len(list) != 4 || list[3].Command != "make bench NAME=rates ARGS='-parts cubes'" {
		t.Errorf("figures %+v, %v", list, err)
	}
	if _, err := run("-limit", "3"); err == nil || !strings.Contains(err.Error(), "square of 2: asked at most 3, measured 4") {
		t.Errorf("a claim that does not hold: %v", err)
	}
}

// A result that an interruption cut off is measured again, and results added behind it stay.
func TestResultsAfterAnInterruption(t *testing.T) {
	dir := t.TempDir()
	measured := 0
	for _, want := range []int{3, 4, 4} {
		var out, log bytes.Buffer
		if err := squares(&measured, false).Run(t.Context(), []string{"-keep", dir}, &out, &log); err != nil {
			t.Fatal(err)
		}
		if measured != want {
			t.Errorf("measured %d times, expected %d", measured, want)
		}
		if want > 3 {
			continue
		}
		path := filepath.Join(dir, "results.jsonl")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, text[:len(text)-10], 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Of a part that fails, the rows that there are come out; the parts after it are measured, and the error names the part.
func TestPartsAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "figures.json")
	var out, log bytes.Buffer
	measured := 0
	err := squares(&measured, true).Run(context.Background(), []string{"-keep", dir, "-figures", file, "-parts", "squares,cubes"}, &out, &log)
	if err == nil || err.Error() != "part squares: broken" || !strings.Contains(out.String(), "| 1 | 1      |") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if list, err := figures.Read(file); err != nil || len(list) != 1 || list[0].Claim != "cube of 2" {
		t.Errorf("figures %+v, %v", list, err)
	}
}

// Wrong flags are refused before anything is measured or written.
func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"-parts", "roots"}, {"-parts", ""}, {"-jobs", "0"}, {"-cubes"}, {"more"}} {
		measured := 0
		var out, log bytes.Buffer
		err := squares(&measured, false).Run(context.Background(), args, &out, &log)
		if err == nil || measured > 0 {
			t.Errorf("%v: %v, measured %d times", args, err, measured)
		}
	}
}

func TestLimits(t *testing.T) {
	check := func(r *instrument.Run, _ *instrument.Table) error {
		for relation, c := range map[string]struct {
			state    func(claim, source string, limit float64, unit string, values ...float64) *figures.Figure
			measured float64
		}{"at most": {r.AtMost, 3}, "at least": {r.AtLeast, 1}, "exactly": {r.Exactly, 3}} {
			f := c.state("claim", "source", 2, "s", 1, 3)
			if f.Measured != c.measured || f.Holds != figures.No || *f.Interval != [2]float64{1, 3} || f.Asked != relation+" 2" {
				t.Errorf("%s: %+v", relation, f)
			}
		}
		if f := r.Exactly("claim", "source", 2, "", 2); f.Holds != figures.Yes || f.Interval != nil {
			t.Errorf("%+v", f)
		}
		return nil
	}
	i := &instrument.Instrument{Name: "limits", Parts: []instrument.Part{{Name: "limits", Measure: check}}}
	if err := i.Run(t.Context(), nil, &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		t.Error(err)
	}
}

// A note that is added to a figure once it is stated is in the file.
func TestNotedLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	i := &instrument.Instrument{Name: "noted", Parts: []instrument.Part{{Name: "noted", Measure: func(r *instrument.Run, _ *instrument.Table) error {
		r.AtMost("first", "source", 2, "s", 1).Note = "one"
		r.AtMost("second", "source", 2, "s", 1).Note = "two"
		return nil
	}}}}
	if err := i.Run(t.Context(), []string{"-figures", file}, &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	list, err := figures.Read(file)
	if err != nil || len(list) != 2 || list[0].Note != "one" || list[1].Note != "two" {
		t.Errorf("%+v, %v", list, err)
	}
}

// The interval of two values is that of Student's t with one degree of freedom.
func TestMean(t *testing.T) {
	if mean, interval := instrument.Mean([]float64{5}); mean != 5 || interval != nil {
		t.Errorf("of one: %v, %v", mean, interval)
	}
	mean, interval := instrument.Mean([]float64{1, 3})
	if mean != 2 || interval == nil || interval[1]-2 < 12.70 || interval[1]-2 > 12.71 {
		t.Errorf("of two: %v, %v", mean, interval)
	}
}

// What ends after the run was cancelled is an error, and is measured again by the next run.
func TestCancelledIsNotKept(t *testing.T) {
	dir := t.TempDir()
	measured := 0
	run := func(ctx context.Context, cancel func()) error {
		part := instrument.Part{Name: "one", Measure: func(r *instrument.Run, t *instrument.Table) error {
			_, err := instrument.Measured(r, "one", func() (int, error) {
				measured++
				cancel()
				return 1, nil
			})
			return err
		}}
		i := instrument.Instrument{Name: "test", Keeps: true, Parts: []instrument.Part{part}}
		var out, log bytes.Buffer
		return i.Run(ctx, []string{"-keep", dir}, &out, &log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := run(ctx, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for range 2 {
		if err := run(t.Context(), func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if measured != 2 {
		t.Errorf("measured %d times, expected 2", measured)
	}
}
