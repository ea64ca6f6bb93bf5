package search

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"inferplan/planner/gear/cascades"
)

// Where not one sample is in time, the least SLO is named; where memory is
// missing, that.
func TestInfeasibleAlone(t *testing.T) {
	p := llama4.problem(t, 1, 5)
	p.SLO = 10 * time.Millisecond
	_, err := Solve(context.Background(), p, programs, Options{Seed: 1})
	inf, ok := errors.AsType[*cascades.InfeasibleError](err)
	if !ok || inf.SLO != 24*time.Millisecond || !strings.Contains(inf.Reason(), "24ms") {
		t.Errorf("%v", err)
	}
	p.Kinds[0].Memory = 1000
	_, err = Solve(context.Background(), p, programs, Options{Seed: 1})
	if inf, ok := errors.AsType[*cascades.InfeasibleError](err); !ok || inf.SLO != 0 || !strings.Contains(inf.Reason(), "memory") {
		t.Errorf("%v", err)
	}
}
