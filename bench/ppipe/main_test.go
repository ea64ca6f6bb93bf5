package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/testkit/bundletest"
)

func made(t *testing.T, args ...string) string {
	t.Helper()
	data := strings.TrimSuffix(bundletest.Dir(t), "/ppipe")
	var out bytes.Buffer
	if err := run(context.Background(), append([]string{"-data", data, "-runs", "2", "-duration", "1s", "-time-limit", "5s"}, args...), &out); err != nil {
		out.WriteString(err.Error())
	}
	return out.String()
}

// The tables come out of the data, for small cases.
func TestTables(t *testing.T) {
	for _, c := range []struct{ name, cases, want string }{
		{"recompute", "", `PPipe +48 +48\n`},
		{"blocks", "^layers/HC2/resnet/2$", "no case of the table matches"},
		{"load", "^maf19/G1/HC1", `maf19 w\S+ +poisson +artifact, stages +NP +3 +0\.\d+ +\+\d+\.\d % ± \d`},
		{"curve", "^maf19/G1/HC1", `G1/HC1\S+ +NP +1\.0000 .*efficientnet-b8 0\.\d+, encnet`},
		{"small", "small/HC2-S/fcn$", `reserve, nodes +HC2-S +DART-r +1 +0\.\d+`},
		{"transfer", "^ablation/fcn/", `ablation/fcn/HC2/w1 +reactive +0\.\d+`},
		{"baselines", "^maf19/G4/HC2", `ours +artifact, stages +NP +3 +0\.\d+`},
		{"headline", "^maf21/G9/", "no recorded plan matches"},
		{"links", "^maf19/G3/HC1/", `lost, mean of 3 +-?0\.0\d+`},
		{"latency", "^maf19/G3/HC1/", `maf19 +G1 G3 +poisson +0\.05 +at once +1\.00 `},
	} {
		if text := made(t, "-tables", c.name, "-cases", c.cases); !regexp.MustCompile(c.want).MatchString(text) {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, text)
		}
	}
}

// A bench goes on from what an interrupted one kept, whose last line is cut
// off, and shows the same.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-keep", dir, "-tables", "load", "-cases", "^maf19/G4/HC2"}
	first := made(t, args...)
	path := filepath.Join(dir, "runs.jsonl")
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, all[:len(all)*2/3], 0o644); err != nil {
		t.Fatal(err)
	}
	if again := made(t, args...); again != first {
		t.Errorf("first\n%s\nagain\n%s", first, again)
	}
	// Nothing is simulated twice: a bench on whole results adds none, and one on a
	// part what is missing, behind the line that was cut off.
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(whole, []byte("\n")) != bytes.Count(all, []byte("\n"))+1 {
		t.Errorf("%d lines after going on, %d at first and one cut off", bytes.Count(whole, []byte("\n")), bytes.Count(all, []byte("\n")))
	}
	made(t, args...)
	if last, err := os.ReadFile(path); err != nil || !bytes.Equal(last, whole) {
		t.Errorf("whole results were added to: %v", err)
	}
}

// A plan that a kept value holds is whole when a bench goes on from it.
func TestKeptPlans(t *testing.T) {
	b := &bench{}
	if err := b.open(strings.TrimSuffix(bundletest.Dir(t), "/ppipe")); err != nil {
		t.Fatal(err)
	}
	all := b.recorded()
	p, err := all[0].plan(t.Context(), "PPipe")
	if err != nil {
		t.Fatal(err)
	}
	dir, made := t.TempDir(), 0
	var shown []string
	for range 2 {
		s, err := openStore(dir, "the same program")
		if err != nil {
			t.Fatal(err)
		}
		kept, err := keep(s, "case", func() (*headlined, error) {
			made++
			return &headlined{Own: storedPlan{p}, Auto: storedPlan{p}, Free: storedPlan{p}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		shown = append(shown, headroom(kept.Auto.Plan))
	}
	if made != 1 || shown[0] != shown[1] {
		t.Errorf("made %d times, headroom %q", made, shown)
	}
}

// A plot is a drawing with its curves in its frame and its texts escaped.
func TestSVG(t *testing.T) {
	text := svg("a < b", "x", "y", []line{{"PPipe", [][2]float64{{0, 0}, {1, 2}}}})
	for _, want := range []string{"a &lt; b", `<polyline points="60.0,350.0 620.0,40.0"`, "</svg>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Arrivals from traces have the rate asked for, and more load puts the same
// requests closer.
func TestTraceRates(t *testing.T) {
	folder := traces(filepath.Join(bundletest.Dir(t), "..", "traces"))
	all, err := folder.processes("azure,azure-minutes,twitter")
	if err != nil {
		t.Fatal(err)
	}
	const rps, seconds = 200.0, 30
	for _, p := range all {
		count := func(rps float64) (n int, first time.Duration) {
			var r arrivals.Request
			src := p.model(rand.New(rand.NewPCG(1, 2)), 1, 3, rps, seconds*time.Second)
			last := time.Duration(0)
			for src.Next(&r) {
				if r.ArrivedAt < last || r.Model != 1 {
					t.Fatalf("%s: request %+v after %v", p.name, r, last)
				}
				if n == 0 {
					first = r.ArrivedAt
				}
				last = r.ArrivedAt
				n++
			}
			return n, first
		}
		n, first := count(rps)
		more, sooner := count(2 * rps)
		if float64(n) < 0.9*rps*seconds || float64(n) > 1.1*rps*seconds || float64(more) < 1.9*float64(n) || sooner > first {
			t.Errorf("%s: %d requests from %v at the rate, %d from %v at twice the rate; want about %v", p.name, n, first, more, sooner, rps*seconds)
		}
	}
}

func TestErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`-tables: found "pies", expected some of recompute,objective,load,curve,small,sensitivity,transfer,baselines,headline,gaps,links,latency,blocks`: {"-tables", "pies"},
		"-cases": {"-cases", "("},
		"-runs 0 and -duration 30s: expected at least 1": {"-runs", "0"},
		"opening the reference data":                     {"-data", t.TempDir()},
	} {
		if err := run(context.Background(), args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	for _, name := range []string{"gamma:x", "gamma:-1", "weibull"} {
		if _, err := traces("").processes(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
