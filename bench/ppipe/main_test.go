package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"inferplan/bench/instrument"
	"inferplan/testkit/bundletest"
)

// start runs an instrument on the reference data with short runs.
func start(t *testing.T, i *instrument.Instrument, args ...string) error {
	t.Helper()
	data := strings.TrimSuffix(bundletest.Dir(t), "/ppipe")
	return i.Run(context.Background(), append([]string{"-data", data, "-keep", t.TempDir(), "-runs", "2", "-duration", "1s"}, args...), io.Discard, io.Discard)
}

// measured returns the rows of a part for some cases.
func measured(t *testing.T, name, cases string) [][]string {
	t.Helper()
	i, _ := newInstrument()
	var rows [][]string
	for _, part := range i.Parts {
		if part.Name != name {
			continue
		}
		i.Parts = []instrument.Part{part}
		i.Parts[0].Measure = func(r *instrument.Run, tab *instrument.Table) error {
			err := part.Measure(r, tab)
			rows = tab.Rows
			return err
		}
	}
	if err := start(t, i, "-cases", cases); err != nil {
		t.Errorf("part %s: %v", name, err)
	}
	return rows
}

// The tables come out of the data, for small cases.
func TestTables(t *testing.T) {
	for _, c := range []struct{ name, cases, want string }{
		{"objective", "^ablation/fcn/", `ablation/fcn/HC2/w1\|\d+\.\d+\|\d+\.\d+\|[+-]0\.000 %`},
		{"load", "^maf19/G1/HC1", `maf19 w\S+\|poisson\|artifact, stages\|NP\|3\|0\.\d+\|\+\d+\.\d % ± \d`},
		{"small", "small/HC2-S/fcn$", `HC2-S\|poisson\|reserve, nodes\|DART-r\|1\|0\.\d+`},
		{"transfer", "^ablation/fcn/", `ablation/fcn/HC2/w1\|reactive\|0\.\d+`},
		{"baselines", "^maf19/G4/HC2", `ours\|poisson\|artifact, stages\|NP\|3\|0\.\d+`},
		{"links", "^maf19/G3/HC1/", `maf19/G3/HC1/\S+\|apcnet\|\d\.\d\d\|\d\.\d\d`},
		{"latency", "^maf19/G3/HC1/", `maf19, G1 G3\|poisson\|0\.05\|at once\|1\.00\|`},
	} {
		var text strings.Builder
		for _, row := range measured(t, c.name, c.cases) {
			text.WriteString(strings.Join(row, "|") + "\n")
		}
		if !regexp.MustCompile(c.want).MatchString(text.String()) {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, text.String())
		}
	}
}

// What was simulated and solved is not measured again.
func TestKeep(t *testing.T) {
	folder := t.TempDir()
	sizes := []int64{}
	for range 2 {
		i, _ := newInstrument()
		if err := start(t, i, "-keep", folder, "-parts", "load", "-cases", "^maf19/G4/HC2"); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(folder, "results.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	if sizes[0] == 0 || sizes[0] != sizes[1] {
		t.Errorf("%d bytes of results after the first start, %d after the second", sizes[0], sizes[1])
	}
}

func TestErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"-cases: error parsing":                         {"-cases", "("},
		"-runs 0 and -duration 1s: expected at least 1": {"-runs", "0"},
		"opening the reference data":                    {"-data", t.TempDir()},
		"no case of the part matches -cases":            {"-parts", "headline", "-cases", "^maf21/G9/"},
	} {
		i, _ := newInstrument()
		if err := start(t, i, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}
