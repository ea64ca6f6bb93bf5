package executor

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// Whoever brings news takes the turn or leaves it to who has it: all of it is
// looked at, by one goroutine at a time.
func TestNoNewsIsLost(t *testing.T) {
	x := open(t, onePlan(time.Millisecond, 1, 1, time.Hour), replayOptions(true))
	c := x.core.Load()
	const callers, each = 16, 500
	var wg sync.WaitGroup
	n := 0 // not atomic: the race detector watches
	for range callers {
		wg.Go(func() {
			for range each {
				c.Loop.CallInRound(func() { n++ })
			}
		})
	}
	wg.Wait()
	c.Loop.CallInRound(func() {
		if n != callers*each {
			t.Errorf("%d calls of %d", n, callers*each)
		}
	})
}

// broken panics when a request comes.
type broken struct{}

func (broken) Handle(_ time.Duration, ev *policy.Event, _ *policy.Actions) {
	if ev.Kind == policy.Arrival {
		panic("a policy that is broken")
	}
}

// A panic inside the core ends the process, whoever's goroutine it happens on: a
// transport would keep it to one request, and all others would wait for ever.
func TestPanicEndsTheProcess(t *testing.T) {
	const inside = "INFERPLAN_TEST_PANIC"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestPanicEndsTheProcess$")
		cmd.Env = append(os.Environ(), inside+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "a policy that is broken") || strings.Contains(string(out), "kept") {
			t.Errorf("ended with %v:\n%s", err, out)
		}
		return
	}
	o := replayOptions(true)
	o.NewPolicy = func(*policy.Tables, formats.PolicySpec) (policy.Policy, error) { return broken{}, nil }
	x := open(t, onePlan(time.Millisecond, 1, 1, time.Hour), o)
	defer func() {
		recover()
		t.Error("the panic was kept")
	}()
	_, _ = x.Infer(context.Background(), sample(x, 1))
}
