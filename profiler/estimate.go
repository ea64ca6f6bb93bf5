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
func (j *modelJob) quickBatch() int { return max(1, j.info.batch) }

// estimate runs every model twice, and returns how long measuring all of them will take, for the user to agree to
// before it begins. It sets expectedTime of each job, by which the budget is later divided. A model that cannot run
// is left out of the run.
func (r *runner) estimate(ctx context.Context, jobs []*modelJob) (Estimate, error) {
	est := Estimate{Device: r.dev.Kind, Name: r.dev.Name, Budget: r.options.Budget}
	var minTime time.Duration // time of loading and of the fewest samples, which are taken whatever the budget
	for _, j := range jobs {
		if err := r.quickRun(ctx, j); err != nil {
			if err := r.refusals.refuse(r, err); err != nil {
				return est, err
			}
			r.jobs = slices.DeleteFunc(r.jobs, func(x *modelJob) bool { return x == j })
			continue
		}

		// Count the work of a round (one sample of everything to measure), in runs of the whole model at batch 1. At
		// share v, v copies run at the same time.
		n := min(r.options.Blocks, j.m.atomCount())
		if j.hasProfileCut {
			n = len(j.entry.Blocks)
		}
		runsAtBatch1, idleTime := 0.0, time.Duration(0)
		for _, key := range j.todo {
			wholeRuns := 1.0 // the whole model
			if j.measuresBlocks[key] {
				wholeRuns = 2 // and the blocks
				if key.batch == j.batches(key.share)[0] {
					wholeRuns, idleTime = 3, idleTime+formats.IdleGap // the whole model after an idle time
				}
			}
			for _, b := range r.missingRanges(j, key) {
				wholeRuns += float64(b[1]-b[0]) / float64(n)
			}
			runsAtBatch1 += wholeRuns * float64(key.batch*key.share)
		}

		// wholeTime is a run at quickBatch. rounds gives the time of n rounds, within the limits of the sampling rule.
		round := time.Duration(runsAtBatch1*float64(j.wholeTime)/float64(j.quickBatch())) + idleTime
		rule := r.options.Precision
		rounds := func(n int) time.Duration {
			d := time.Duration(n) * round
			if rule.MaxSpan > 0 {
				d = max(min(d, rule.MaxSpan), time.Duration(rule.MinRounds)*round)
			}
			return max(d, rule.MinSpan)
		}

		// Preparation loads the blocks and the whole model, and warms up. Cutting loads and times every atom, too.
		prepare := 2*j.loadTime + 4*round
		if !j.hasProfileCut {
			prepare += 2*j.loadTime + time.Duration(j.atomRounds(r)+4)*j.wholeTime
		}
		if r.needsCutFP16Check(j) {
			prepare += time.Duration(j.fp16Samples(r)) * j.fp16SampleTime(r.options)
		}

		// Expect half more rounds than the fewest.
		j.expectedTime = prepare + rounds((3*rule.MinRounds+1)/2)
		minTime += prepare + budgetRounds*round
		est.Models = append(est.Models, ModelEstimate{Model: j.info.name, WholeTime: j.wholeTime, Measurements: len(j.todo), Blocks: n, ExpectedTime: j.expectedTime})
		est.ExpectedTime += j.expectedTime
		est.MaxTime += prepare + rounds(rule.MaxRounds)
	}
	if bound := max(r.options.Budget, minTime); r.options.Budget > 0 {
		est.ExpectedTime, est.MaxTime = min(est.ExpectedTime, bound), min(est.MaxTime, bound)
	}
	return est, nil
}

// cannotRun returns the error for a model that was loaded but does not run.
func cannotRun(ctx context.Context, j *modelJob, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %s: it does not run with the inputs %s; where values matter, give them (--input): %w", ErrInput, j.info.path, describeInputs(j.entry), err)
}

// quickRun loads the whole model and runs it twice, at batch 1 or, if its batch is fixed, at that. It stores the
// times of loading and of the second run in the job (loadTime, wholeTime); estimate computes from them how long
// measuring will take. A model that the engine cannot execute is found here, before the long work.
func (r *runner) quickRun(ctx context.Context, j *modelJob) error {
	begin := r.options.now()
	uncut := j.m.wholeModel()
	blk, err := r.target().loadSlice(ctx, uncut, 0, uncut.Len(), graph.SliceOptions{})
	if err != nil {
		if errors.Is(err, engine.ErrModel) || errors.Is(err, engine.ErrFallback) {
			return fmt.Errorf("%w: %s: %w", ErrInput, j.info.path, err)
		}
		return err
	}
	c := loadedModel{blocks: []engine.Block{blk}}
	defer c.close()
	j.loadTime = r.options.now().Sub(begin)

	// Run it twice, because the first run is slower.
	b, err := bindChain(c.blocks, j.quickBatch(), j.info.values)
	if err != nil {
		return cannotRun(ctx, j, err)
	}
	// The key only lets close find the binding.
	c.bound = map[int]*boundModel{1: {blocks: b}}
	for range 2 {
		t, err := b[0].RunN(1)
		if err != nil {
			return cannotRun(ctx, j, err)
		}
		_, j.wholeTime = t.PerRun()
	}
	return nil
}
