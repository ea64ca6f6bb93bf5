package main

import (
	"context"
	"encoding/xml"
	"errors"
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

	"inferplan/formats/seeded"
)

// The short form of the attack: what needs no quiet machine.
func TestAttack(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan")
	if out, err := exec.Command("go", "build", "-o", plan, "inferplan/cmd/plan").CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	var said strings.Builder
	if err := run(t.Context(), []string{"-plan", plan, "-root", "../..", "-scale", "0.005", "-parts", "requests,documents,magnitudes,switches"}, &said); err != nil {
		t.Errorf("%v\n%s", err, &said)
	}
}

func TestWrongParts(t *testing.T) {
	if err := run(t.Context(), []string{"-parts", "requests,sabotage"}, io.Discard); err == nil || !strings.Contains(err.Error(), "sabotage") {
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
		e    ending
		want string
	}{
		{ending{code: 0}, ""}, {ending{code: 2, said: "plan: x.json:1:1: found nothing"}, ""}, {ending{code: 3}, ""},
		{ending{code: 5}, "exit code 5"}, {ending{code: -1}, "killed"}, {ending{code: 2, said: "panic: runtime error\n\ngoroutine 1 [running]:"}, "panics"},
		{ending{cpu: 6 * time.Second, code: 2}, "over 5s"}, {ending{cpu: 6 * time.Second}, tookLong}, {ending{cpu: 3 * time.Second}, ""}, {ending{memory: 2 << 30}, "over 1 GiB"}, {ending{code: -1, wall: hung}, "does not end"},
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
	a := &target{plan: path}
	e := a.call(t.Context(), t.TempDir(), "-c", "echo found nothing >&2; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3")
	if e.code != 3 || e.said != "found nothing\n" || e.cpu <= 0 || e.memory < 100<<10 {
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
		s := sample{at: time.Duration(i) * time.Second, rss: 50 + .01*float64(i), descriptors: 10, goroutine: 20, answers: float64(5 * i)}
		if i == 50 {
			s.rss += 100
		}
		list = append(list, s)
	}
	if got := slopeOf(list); math.Abs(got-.01) > 1e-9 {
		t.Errorf("slope %v", got)
	}
	d := xml.NewDecoder(strings.NewReader(drawSoak(list)))
	for lines := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if lines != 4 {
				t.Errorf("%d curves", lines)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
}

// A process is watched by what the kernel says of it.
func TestServerIsWatched(t *testing.T) {
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{cmd: &exec.Cmd{Process: p}}
	before := s.cpu()
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		_ = math.Sqrt(2)
	}
	if s.cpu() <= before || s.status("VmRSS") < 1<<20 || s.status("VmHWM") < s.status("VmRSS")/2 || s.descriptors() < 3 {
		t.Errorf("cpu %v then %v, rss %d, peak %d, %d descriptors", before, s.cpu(), s.status("VmRSS"), s.status("VmHWM"), s.descriptors())
	}
	if got := sum(map[string]float64{`a{x="1"}`: 1, `a{x="2"}`: 2, `ab{x="1"}`: 4}, "a", ""); got != 3 {
		t.Errorf("sum %v", got)
	}
}
