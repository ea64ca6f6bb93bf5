package records

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
)

const good = `sample_id,model,correct,certainty
10,a,1,0.9
10,b,0,0.5
11,b,1,0.7
11,a,0,0.1
12,a,1,0.3
12,b,1,1
`

func TestReadOrdersModelsAndSamples(t *testing.T) {
	got, err := Read(strings.NewReader(good), "r.csv", Options{NoShuffle: true, HeldOut: .34, Source: "test"})
	want := &formats.Records{Source: "test", Samples: 3, PlanningSamples: 2, Models: []formats.ModelRecords{
		{Model: "a", Certainty: []float64{.9, .1, .3}, Correct: "101"}, {Model: "b", Certainty: []float64{.5, .7, 1}, Correct: "011"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	only, err := Read(strings.NewReader(good), "r.csv", Options{NoShuffle: true, Models: []string{"b"}})
	if err != nil || len(only.Models) != 1 || only.Models[0].Correct != "011" || only.PlanningSamples != 3 {
		t.Errorf("only b: %+v, %v", only, err)
	}
}

// The shuffle depends on the seed and not on the order of the rows.
func TestShuffleFollowsSeedNotOrder(t *testing.T) {
	var rows []string
	for i := range 40 {
		rows = append(rows, strings.Join([]string{string(rune('A'+i/26)) + string(rune('a'+i%26)), "m", "1", "0." + string(rune('0'+i%10)) + string(rune('0'+i/10))}, ","))
	}
	read := func(rows []string, seed uint64) []float64 {
		r, err := Read(strings.NewReader(strings.Join(header, ",")+"\n"+strings.Join(rows, "\n")), "r.csv", Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return r.Models[0].Certainty
	}
	one, other := read(rows, 1), read(rows, 2)
	slices.Reverse(rows)
	if back := read(rows, 1); !slices.Equal(one, back) {
		t.Errorf("the order of rows matters: %v and %v", one, back)
	}
	if slices.Equal(one, other) {
		t.Error("seeds 1 and 2 give the same order")
	}
	slices.Sort(one)
	slices.Sort(other)
	if !slices.Equal(one, other) {
		t.Error("a shuffle lost samples")
	}
}

func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		opt  Options
		want []string
	}{
		"empty":       {"", Options{}, []string{"r.csv", "an empty file"}},
		"header":      {"a,b\n", Options{}, []string{"r.csv:1", "sample_id"}},
		"no rows":     {"sample_id,model,correct,certainty\n", Options{}, []string{"r.csv", "no row"}},
		"certainty":   {strings.Replace(good, "0.7", "1.7", 1), Options{}, []string{"r.csv:4", "certainty", "1.7"}},
		"nan":         {strings.Replace(good, "0.7", "nan", 1), Options{}, []string{"r.csv:4", "certainty"}},
		"correct":     {strings.Replace(good, "11,a,0", "11,a,2", 1), Options{}, []string{"r.csv:5", "correct", `"2"`}},
		"twice":       {good + "10,a,1,0.9\n", Options{}, []string{"r.csv:8", "again"}},
		"row missing": {strings.Replace(good, "12,b,1,1\n", "", 1), Options{}, []string{"r.csv", "no row of b for sample 12"}},
		"model":       {good, Options{Models: []string{"c"}}, []string{"r.csv", `"c"`, "a, b"}},
		"held out":    {good, Options{HeldOut: 1}, []string{"held out"}},
		"columns":     {good + "1,2,3\n", Options{}, []string{"r.csv:8", "another number of columns"}},
	} {
		_, err := Read(strings.NewReader(c.text), "r.csv", c.opt)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
}

func TestCalibrateMakesScoresMonotone(t *testing.T) {
	m := formats.ModelRecords{Certainty: []float64{.1, .2, .3, .4, .4, .9, .05, .35, .95}, Correct: "010110111"}
	Calibrate(&m, 6) // samples: .1 no, .2 yes, .3 no, .4 yes yes, .9 no
	want := []float64{0, .5, .5, 2. / 3, 2. / 3, 2. / 3, 0, .5, 2. / 3}
	for i := range want {
		if math.Abs(m.Certainty[i]-want[i]) > 1e-12 {
			t.Fatalf("%v, expected %v", m.Certainty, want)
		}
	}
	// What was done is kept, so that a server can do it with scores of its own.
	raw := []float64{.1, .2, .3, .4, .4, .9, .05, .35, .95}
	for i := range raw {
		if got := m.Calibration.Calibrated(raw[i]); got != m.Certainty[i] {
			t.Errorf("at %v: %v, expected %v", raw[i], got, m.Certainty[i])
		}
	}
}

// The published records: accuracies of the bundle's README on all samples.
func TestPublishedRecordsHaveTheirAccuracies(t *testing.T) {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, "cascade", "frugalml_imdb_60pct.csv.gz"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no records at %s; set INFERPLAN_DATA to the folder that holds cascade/", dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Read(f, "imdb", Options{Seed: 1, HeldOut: .25, Models: []string{"GitHub(Vader)", "Amazon", "Google"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Samples != 15000 || r.PlanningSamples != 11250 {
		t.Errorf("%d samples, %d to plan on, expected 15000 and 11250", r.Samples, r.PlanningSamples)
	}
	for k, want := range []float64{.6897, .7900, .8635} {
		if got := float64(strings.Count(r.Models[k].Correct, "1")) / float64(r.Samples); math.Abs(got-want) > 5e-5 {
			t.Errorf("%s: accuracy %.4f, expected %.4f", r.Models[k].Model, got, want)
		}
		// Shuffled: the file is ordered by label, and Google is much better on one.
		if got := float64(strings.Count(r.Models[k].Correct[:500], "1")) / 500; math.Abs(got-want) > .06 {
			t.Errorf("%s: accuracy %.4f on the first 500, %.4f on all: not shuffled", r.Models[k].Model, got, want)
		}
	}
	for k := range r.Models {
		Calibrate(&r.Models[k], r.PlanningSamples)
	}
	p := &formats.Profile{Format: "inferplan.profile/v1", Records: []formats.Records{*r}}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(good)
	f.Add("sample_id,model,correct,certainty\n1,a,1,1e-400\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Read(strings.NewReader(text), "r.csv", Options{Calibrate: true, HeldOut: .3})
		if err != nil {
			return
		}
		p := &formats.Profile{Format: "inferplan.profile/v1", Records: []formats.Records{*r}}
		if err := p.Validate(); err != nil {
			t.Fatalf("invalid records without an error: %v", err)
		}
	})
}
