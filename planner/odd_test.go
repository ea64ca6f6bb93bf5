package planner_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/mutant"
)

// Searches of odd problems end within 20 s of CPU time, in a plan or with the reason why there is none,
// and within a second after an interrupt.
func TestOddProblems(t *testing.T) {
	const (
		most      = 20 * time.Second
		mostAfter = time.Second
	)
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	seeds := []uint64{112, 54, 253} // many models that are alike on few devices; three workflows that are alike; loads of 80 hours
	together := 12 * time.Second
	if os.Getenv("INFERPLAN_LONG") != "" {
		seeds, together = append(seeds, 26, 113, 166, 177), time.Hour // 1,479 devices and an SLO of hours; thousands of groups; a long no; 18 models at least price
	}
	for seed := range uint64(300) {
		seeds = append(seeds, 1+seed)
	}
	begun, solved := cputime.Used(), 0
	for _, seed := range seeds {
		if cputime.Used()-begun > together && solved >= len(problems) { // a slow machine solves fewer in that time
			break
		}
		x := mutant.DrawOdd(problems, seed)
		in, err := decodeDocuments(x.Documents)
		if err != nil {
			continue // no problem
		}
		in.WorkloadDir = t.TempDir()
		opt := planner.Options{}
		if x.Kind != "gear" && x.Kind != "queue" {
			opt.Set("margin", planner.Auto)
		}
		for name, value := range x.Options {
			opt.Set(name, value)
		}
		before, start := cputime.Used(), time.Now()
		_, err = planner.Solve(t.Context(), in, opt, highs.Solver{}, nil)
		took, wall := cputime.Used()-before, time.Since(start)
		_, infeasible := errors.AsType[*planner.InfeasibleError](err)
		if took > most || err != nil && !infeasible && len(document.Findings(err)) == 0 {
			t.Errorf("seed %d, %s %v (%v): %v, %v of CPU time", seed, x.Kind, x.Options, x.What, err, took)
		}
		if solved++; wall < mostAfter/4 {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		var at atomic.Int64
		timer := time.AfterFunc(wall*time.Duration(seed%8)/8, func() {
			at.Store(int64(cputime.Used()))
			cancel()
		})
		_, _ = planner.Solve(ctx, in, opt, highs.Solver{}, nil) // TestInterruptedPlansClaimNoMoreThanWasProved looks at it
		ended := cputime.Used()
		if timer.Stop(); ctx.Err() != nil && ended-time.Duration(at.Load()) > mostAfter {
			t.Errorf("seed %d, %s %v (%v): %v of CPU time after an interrupt", seed, x.Kind, x.Options, x.What, ended-time.Duration(at.Load()))
		}
		cancel()
	}
	if solved < len(problems) {
		t.Errorf("%d problems: too few for the test to say anything", solved)
	}
}
