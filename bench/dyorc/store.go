package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"inferplan/bench/dyorc/baselines"
	"inferplan/bench/kept"
)

// store keeps runs as lines of a file, so that a bench that was interrupted goes
// on where it was. A key holds all that a run depends on, with a hash of this
// program.
type store struct {
	mu      sync.Mutex
	program string
	runs    map[string]outcome
	lines   *kept.Lines
}

type storedRun struct {
	Key string `json:"key"`
	outcome
}

func openStore(dir, program string, fresh bool) (*store, error) {
	s := &store{runs: map[string]outcome{}, program: program}
	var err error
	if program == "" {
		if s.program, err = kept.Program(); err != nil {
			return nil, fmt.Errorf("reading this program, whose results are kept: %w", err)
		}
	}
	s.lines, err = kept.Open(filepath.Join(dir, "runs.jsonl"), fresh, func(line []byte) error {
		var r storedRun
		if json.Unmarshal(line, &r) == nil && r.Key != "" {
			s.runs[r.Key] = r.outcome
		}
		return nil
	})
	return s, err
}

// has returns the outcome that is kept under a key.
func (s *store) has(key string) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.runs[key]
	return r, ok
}

// put keeps a run.
func (s *store) put(key string, r *outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[key] = *r
	return s.lines.Add(storedRun{key, *r})
}

// ask is a run that a table needs.
type ask struct {
	sc      *scene
	policy  string
	seed    uint64
	instant bool // loads take no time
}

// runner runs scenes under policies, and keeps what they showed.
type runner struct {
	ctx    context.Context
	trace  trace
	verify bool // check the simulator's invariants
	jobs   int
	store  *store
}

func (x *runner) key(a *ask) string {
	return fmt.Sprintf("%s %+v %s %d %v", x.store.program, *a.sc, a.policy, a.seed, a.instant)
}

// run gives a run from the store, or runs it. A static fleet holds the networks
// that DyOrc as published held for longest on the same arrivals.
func (x *runner) run(ctx context.Context, a *ask) (*outcome, error) {
	if r, ok := x.store.has(x.key(a)); ok {
		return &r, nil
	}
	opt, err := baselines.Named(a.policy, a.sc.Scale)
	if err != nil {
		return nil, err
	}
	var resident [][]int32
	if opt.StaticNetworks {
		of := *a.sc
		of.Scale, of.Oracle = 0, 0 // its policy knows no deadlines
		if sc := a.sc; sc.Oracle > 0 {
			of.Minutes, of.Warmup = sc.Oracle, 0
		}
		if of.Rates.shift { // it does not know what comes
			of.Rates.shift, of.Minutes = false, minutes/2
		}
		r, err := x.run(ctx, &ask{sc: &of, policy: "dyorc-early", seed: a.seed})
		if err != nil {
			return nil, err
		}
		resident = r.Resident
	} else if a.sc.Planned {
		if resident, err = a.sc.planned(ctx); err != nil {
			return nil, err
		}
	}
	r, err := x.play(ctx, a.sc, opt, a.seed, resident, a.instant)
	if err != nil {
		return nil, fmt.Errorf("%s under %s, seed %d: %w", a.sc.Name, a.policy, a.seed, err)
	}
	if a.policy != "dyorc-early" {
		r.Resident = nil
	}
	return r, x.store.put(x.key(a), r)
}

// all runs what a table needs, several at a time, and gives it in order.
func (x *runner) all(list []ask) ([]*outcome, error) {
	out, errs := make([]*outcome, len(list)), make([]error, len(list))
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(x.jobs, len(list)) {
		wg.Go(func() {
			for i := range next {
				if out[i], errs[i] = x.run(ctx, &list[i]); errs[i] != nil {
					cancel()
				}
			}
		})
	}
feed:
	for i := range list {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, ctx.Err()
}
