package served_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inferplan/bench/served"
)

// Calls begin at their moments whatever becomes of those before, and end with the context.
func TestPaceKeepsMoments(t *testing.T) {
	moments := []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond}
	var calls atomic.Int64
	began, err := served.Pace(t.Context(), moments, func(i int, _ time.Time) {
		calls.Add(1)
		time.Sleep(30 * time.Millisecond)
	})
	if err != nil || len(began) != 3 || calls.Load() != 3 {
		t.Fatalf("%v, %d calls, %v", began, calls.Load(), err)
	}
	for i, at := range began {
		if at < moments[i] {
			t.Errorf("call %d at %v, expected %v at the earliest", i, at, moments[i])
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	began, err = served.Pace(ctx, moments, func(int, time.Time) { stop() })
	if !errors.Is(err, context.Canceled) || len(began) == 3 {
		t.Errorf("%v, %v", began, err)
	}
}

// A shell stands in for plan: its arguments are those of the verb.
func shell(t *testing.T) served.Program {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell (sh) for the stand-in")
	}
	return served.Program{Path: path, Folder: t.TempDir()}
}

func TestServerIsReadAndStopped(t *testing.T) {
	s, err := shell(t).Start(t.Context(), "-c", `trap 'echo bye >&2; exit 3' TERM; echo one >&2; echo two >&2; while :; do sleep .01; done`)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	if line, err := s.Await(t.Context(), 0, time.Minute, func(line string) bool { return line == "two" }); err != nil || line != "two" || !s.Alive() {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := s.Await(t.Context(), 0, time.Millisecond, func(string) bool { return false }); err == nil {
		t.Error("a line that nobody says is found")
	}
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "code 3") || !strings.Contains(err.Error(), "bye") || s.Alive() {
		t.Errorf("%v", err)
	}
}

// What a program says is in the error, also of one that ends instead of serving.
func TestFailuresSayWhatTheProgramSaid(t *testing.T) {
	p := shell(t)
	if err := p.Run(t.Context(), "-c", "echo why >&2; exit 2"); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("%v", err)
	}
	s, err := p.Serve(t.Context())
	if err == nil || s == nil || s.ExitCode() == 0 || !strings.Contains(err.Error(), "serve") {
		t.Errorf("%v", err)
	}
}
