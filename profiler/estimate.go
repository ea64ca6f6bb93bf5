package profiler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
)

// quickBatch returns the batch size of quick runs.
func (j *job) quickBatch() int { return max(1, j.in.batch) }

// estimate runs every model once, and returns how long measuring will take.
func (r *runner) estimate(ctx context.Context, jobs []*job) (Estimate, error) {
	est := Estimate{Device: r.dev.Kind, Name: r.dev.Name, Budget: r.o.Budget}
	var least time.Duration // time of loading and of the fewest samples, which are taken whatever the budget
	for _, j := range jobs {
		if err := r.quick(ctx, j); err != nil {
			if err := r.refused.refuse(r, err); err != nil {
				return est, err
			}
			r.jobs = slices.DeleteFunc(r.jobs, func(x *job) bool { return x == j })
			continue
		}

		// Count the runs of a round, in runs of the whole model at batch 1.
		n := min(r.o.Blocks, j.m.atoms())
		runs, rests := 0.0, time.Duration(0)
		for _, u := range j.todo {
			wholes := 1.0
			if j.base[u] {
				wholes = 2 // the blocks
				if u.batch == j.batches(u.share)[0] {
					wholes, rests = 3, rests+formats.IdleGap // the whole model after an idle time
				}
			}
			for _, b := range r.missing(j, u) {
				wholes += float64(b[1]-b[0]) / float64(n)
			}
			runs += wholes * float64(u.batch*u.share)
		}
		round := time.Duration(runs*float64(j.whole)/float64(j.quickBatch())) + rests
		rule := r.o.Precision
		rounds := func(n int) time.Duration {
			d := time.Duration(n) * round
			if rule.MaxSpan > 0 {
				d = max(min(d, rule.MaxSpan), time.Duration(rule.MinRounds)*round)
			}
			return max(d, rule.MinSpan)
		}
		prepare := 2*j.load + 4*round
		if !j.prior {
			prepare += 2*j.load + time.Duration(j.rounds(r)+4)*j.whole
		}
		if r.wantsFP16(j) {
			prepare += time.Duration(j.fp16Samples(r)) * j.fp16Sample(r.o)
		}
		j.expect = prepare + rounds((3*rule.MinRounds+1)/2)
		least += prepare + budgetRounds*round
		est.Models = append(est.Models, ModelEstimate{Model: j.in.name, Whole: j.whole, Measurements: len(j.todo), Blocks: n, Expected: j.expect})
		est.Expected += j.expect
		est.AtMost += prepare + rounds(rule.MaxRounds)
	}
	if bound := max(r.o.Budget, least); r.o.Budget > 0 {
		est.Expected, est.AtMost = min(est.Expected, bound), min(est.AtMost, bound)
	}
	return est, nil
}

// cannotRun returns the error for a model that was loaded but does not run.
func cannotRun(ctx context.Context, j *job, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %s: it does not run with the inputs %s; where values matter, give them (--input): %w", ErrInput, j.in.path, shapes(j.entry), err)
}

// quickRun loads the whole model and runs it twice, and times the second run. A model that the engine cannot
// execute is found here, before the long work.
func (r *runner) quick(ctx context.Context, j *job) error {
	begin := r.o.now()
	whole := j.m.whole()
	blk, err := r.here().loadSlice(ctx, whole, 0, whole.Len(), graph.SliceOptions{})
	if err != nil {
		if errors.Is(err, engine.ErrModel) || errors.Is(err, engine.ErrFallback) {
			return fmt.Errorf("%w: %s: %w", ErrInput, j.in.path, err)
		}
		return err
	}
	c := chain{blocks: []engine.Block{blk}}
	defer c.close()
	j.load = r.o.now().Sub(begin)
	b, err := bindChain(c.blocks, j.quickBatch(), 0, j.in.values)
	if err != nil {
		return cannotRun(ctx, j, err)
	}
	c.bound = map[int]*bound{1: {blocks: b}}
	for range 2 {
		t, err := b[0].RunN(1)
		if err != nil {
			return cannotRun(ctx, j, err)
		}
		_, j.whole = t.PerRun()
	}
	return nil
}
