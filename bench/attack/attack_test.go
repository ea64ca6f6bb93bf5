package main

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/bench/served"
	"inferplan/formats/seeded"
)

// The short form of the attack: what needs no quiet machine.
func TestAttack(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan")
	if out, err := exec.Command("go", "build", "-o", plan, "inferplan/cmd/plan").CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	var said strings.Builder
	if err := newInstrument().Run(t.Context(), []string{"-plan", plan, "-root", "../..", "-scale", "0.005", "-parts", "requests,documents,magnitudes,switches"}, &said, &said); err != nil {
		t.Errorf("%v\n%s", err, &said)
	}
}

func TestWrongParts(t *testing.T) {
	if err := newInstrument().Run(t.Context(), []string{"-parts", "requests,sabotage"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "sabotage") {
		t.Errorf("%v", err)
	}
}

// A failure of the server is one.
func TestFailuresAreSeen(t *testing.T) {
	for code, want := range map[int]bool{200: false, 400: false, 429: false, 500: true, 501: false, 503: true, 505: false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		if answer, failure := sendREST(strings.TrimPrefix(s.URL, "http://"), restWire().make(&mutator{Rand: seeded.New(1, "x")})); failure != want {
			t.Errorf("%d: %s, failure %v", code, answer, failure)
		}
		s.Close()
	}
	for _, c := range []struct {
		e    exit
		want string
	}{
		{exit{code: 0}, ""}, {exit{code: 2, said: "plan: x.json:1:1: found nothing"}, ""}, {exit{code: 3}, ""},
		{exit{code: 5}, "exit code 5"}, {exit{code: -1}, "killed"}, {exit{code: 2, said: "panic: runtime error\n\ngoroutine 1 [running]:"}, "panics"},
		{exit{cpu: 6 * time.Second, code: 2}, "over 5s"}, {exit{cpu: 6 * time.Second}, tookLong}, {exit{cpu: 3 * time.Second}, ""}, {exit{memory: 2048}, "over 1 GiB"}, {exit{code: -1, wall: hung}, "does not end"},
	} {
		if got := c.e.fault(mostOther); got != c.want {
			t.Errorf("%+v: found %q, expected %q", c.e, got, c.want)
		}
	}
}

// The same seed makes the same mutants, and they differ from what they are made of.
func TestMutants(t *testing.T) {
	for _, w := range []wire{restWire(), grpcWire()} {
		one, two := &mutator{Rand: seeded.New(1, "x"), words: requestWords}, &mutator{Rand: seeded.New(1, "x"), words: requestWords}
		seen := map[string]bool{}
		for range 500 {
			a, b := w.make(one), w.make(two)
			if !slices.Equal(a, b) {
				t.Fatalf("%s: %q and %q", w.name, a, b)
			}
			seen[string(a)] = true
		}
		if len(seen) < 400 {
			t.Errorf("%s: %d different mutants of 500", w.name, len(seen))
		}
	}
	m := &mutator{Rand: seeded.New(1, "y")}
	for range 2000 {
		if b := m.mutate(nil, 1000); len(b) > 1000 {
			t.Fatalf("%d bytes", len(b))
		}
	}
}

func TestProgramsAreMeasured(t *testing.T) {
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell (sh) for the stand-in")
	}
	a := &attack{Program: served.Program{Path: path}}
	e := a.call(t.Context(), t.TempDir(), "-c", "echo found nothing >&2; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3")
	if e.code != 3 || e.said != "found nothing\n" || e.cpu <= 0 || e.memory < 1 {
		t.Errorf("%+v", e)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if e := a.call(gone, t.TempDir(), "-c", "true"); e.code >= 0 {
		t.Errorf("%+v", e)
	}
}

func TestSoakIsDrawnAndItsSlopeFound(t *testing.T) {
	var list []sample
	for i := range 100 {
		s := sample{at: time.Duration(i) * time.Second, memory: 50 + .01*float64(i), descriptors: 10, goroutines: 20, answers: float64(5 * i)}
		if i == 50 {
			s.memory += 100
		}
		list = append(list, s)
	}
	if got := slopeOf(list); math.Abs(got-.01) > 1e-9 {
		t.Errorf("slope %v", got)
	}
	if drawn, err := drawSoak(list); err != nil || !strings.Contains(string(drawn), "</svg>") {
		t.Errorf("%.100s, %v", drawn, err)
	}
}

// A process is watched by what the kernel says of it.
func TestServerIsWatched(t *testing.T) {
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{&served.Server{Command: &exec.Cmd{Process: p}}}
	before := s.cpu()
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		_ = math.Sqrt(2)
	}
	if s.cpu() <= before || s.memory("VmRSS") < 1 || s.memory("VmHWM") < s.memory("VmRSS")/2 || s.descriptors() < 3 {
		t.Errorf("cpu %v then %v, rss %g, peak %g, %d descriptors", before, s.cpu(), s.memory("VmRSS"), s.memory("VmHWM"), s.descriptors())
	}
	if got := (series{`a{x="1"}`: 1, `a{x="2"}`: 2, `ab{x="1"}`: 4}).sum("a"); got != 3 {
		t.Errorf("sum %v", got)
	}
}
