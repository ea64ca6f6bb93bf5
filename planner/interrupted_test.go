package planner_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/mutant"
)

// countdownContext is a context that ends after it was asked so often whether it has.
type countdownContext struct {
	context.Context
	mu       sync.Mutex
	maxCalls int
	calls    int
	closed   chan struct{}
}

func contextAfter(n int) *countdownContext {
	return &countdownContext{Context: context.Background(), maxCalls: n, closed: make(chan struct{})}
}

func (c *countdownContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *countdownContext) Done() <-chan struct{} { return c.closed }

func (c *countdownContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.calls < c.maxCalls {
		return nil
	}
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return context.Canceled
}

// A plan of a search that was interrupted says that it is proved only where the proof was
// complete: then it is as good, and bounded as closely, as that of the whole search.
func TestInterruptedPlansClaimNoMoreThanWasProved(t *testing.T) {
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	tries := 6
	if os.Getenv("INFERPLAN_LONG") != "" {
		tries = 60
	}
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		t.Run(name, func(t *testing.T) {
			in := inputsOf(t, problems[name])
			whole := contextAfter(math.MaxInt)
			full, err := planner.Solve(whole, in, planner.Options{}, highs.Solver{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for i := range tries {
				// Near the start and near the end, where proofs are almost complete.
				n := 1 + whole.calls*i/tries
				if i%2 == 1 {
					n = max(1, whole.calls-i*i/2)
				}
				res, err := planner.Solve(contextAfter(n), in, planner.Options{}, highs.Solver{}, nil)
				if _, infeasible := errors.AsType[*planner.InfeasibleError](err); infeasible {
					t.Errorf("interrupted at %d of %d: %v", n, whole.calls, err)
				}
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("interrupted at %d of %d, it does not say so: %v", n, whole.calls, err)
					}
					got["no plan"]++
					continue
				}
				o, f := res.Plan.Objective, full.Plan.Objective
				got[res.StoppedBy]++
				if res.Plan.StoppedBy != "proved" {
					continue
				}
				if full.Plan.StoppedBy != "proved" || math.Abs(o.Value-f.Value) > 1e-9*math.Abs(f.Value) || o.Bound == nil || math.Abs(*o.Bound-*f.Bound) > 1e-6*math.Abs(*f.Bound) {
					t.Errorf("interrupted at %d of %d: proved %v of at most %v, the whole search %v (%s) of at most %v", n, whole.calls, o.Value, o.Bound, f.Value, full.Plan.StoppedBy, f.Bound)
				}
			}
			t.Log(whole.calls, got)
		})
	}
}

// inputsOf reads the documents of a problem.
func inputsOf(t *testing.T, documents mutant.Problem) (in planner.Inputs) {
	t.Helper()
	for role, tree := range documents {
		text, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		_, doc, err := formats.Decode(text, role+".json")
		switch d := doc.(type) {
		case *formats.Profile:
			in.Profile = d
		case *formats.Cluster:
			in.Cluster = d
		case *formats.Workload:
			in.Workload = d
		default:
			t.Fatal(role, err)
		}
	}
	return in
}
