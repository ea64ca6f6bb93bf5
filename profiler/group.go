package profiler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Limits of a group. The models of a group are loaded at the same time, and their numbers are written to the file
// as soon as they are tight.
const (
	groupTime    = 4 * time.Minute
	groupMemory  = int64(4) << 30
	memoryFactor = 4 // of the weights: blocks and whole model, prepacked weights, activations
)

// groupJobs divides the models into groups that are loaded together and sampled in turns.
func (r *runner) groupJobs(jobs []*modelJob) [][]*modelJob {
	memoryLimit := groupMemory
	if r.dev.MemoryBytes > 0 {
		memoryLimit = r.dev.MemoryBytes / 3
	}
	if !r.dev.IsCPU() {
		// A GPU holds the weights once per batch size, and activations of large batches need more memory than
		// weights. So each model is a group by itself: a GPU that nobody else uses drifts little in time.
		memoryLimit = 0
	}
	var out [][]*modelJob
	var usedMemory int64
	var span time.Duration
	for _, j := range jobs {
		need := memoryFactor * j.info.weightBytes
		if n := len(out); n > 0 && usedMemory+need <= memoryLimit && span+j.expectedTime <= groupTime {
			out[n-1] = append(out[n-1], j)
			usedMemory += need
			span += j.expectedTime
			continue
		}
		out = append(out, []*modelJob{j})
		usedMemory, span = need, j.expectedTime
	}
	return out
}

// deadline returns when the first of the remaining groups has to stop sampling. The remaining budget is split by
// expected cost, so that all groups get as many rounds.
func (r *runner) deadline(remaining [][]*modelJob) time.Time {
	if r.options.Budget <= 0 {
		return time.Time{}
	}
	var firstTime, totalTime time.Duration
	for i, g := range remaining {
		for _, j := range g {
			totalTime += j.expectedTime
			if i == 0 {
				firstTime += j.expectedTime
			}
		}
	}
	now := r.options.now()
	remainingTime := r.begun.Add(r.options.Budget).Sub(now)
	return now.Add(time.Duration(float64(remainingTime) * float64(firstTime) / math.Max(1, float64(totalTime))))
}

// jobGroup is the measuring of models that are loaded at the same time and sampled in turns.
type jobGroup struct {
	run      *runner
	options  *Options
	progress *progress
	members  []*modelJob
	sampler  sampler // template for the samplers of all passes
}

// newGroup makes a group whose sampling stops at a deadline.
func (r *runner) newGroup(members []*modelJob, deadline time.Time) *jobGroup {
	s := sampler{rule: r.options.Precision, now: r.options.now, turn: r.options.turn, deadline: deadline}
	if isTimedByCPU(r.dev) {
		s.measureReference = newReference().measure
	}
	return &jobGroup{run: r, options: r.options, progress: &r.progress, members: members, sampler: s}
}

// measure prepares the models and takes their samples.
func (g *jobGroup) measure(ctx context.Context) (err error) {
	defer func() {
		for _, j := range g.members {
			for _, copies := range j.loadedByShare {
				for _, c := range copies {
					err = errors.Join(err, c.close())
				}
			}
			clear(j.loadedByShare)
		}
	}()
	for _, j := range g.members {
		if err := g.prepare(ctx, j); err != nil {
			return err
		}
	}
	for _, share := range g.options.Shares {
		if err := g.sampleShare(ctx, share); err != nil {
			return err
		}
	}
	return nil
}

// sampleShare samples all probe sets at one share.
func (g *jobGroup) sampleShare(ctx context.Context, share int) (err error) {
	places := []loadTarget{g.run.target()}
	if share > 1 && slices.ContainsFunc(g.members, func(j *modelJob) bool { return len(j.batches(share)) > 0 }) {
		sh, err := g.options.Sharer.Open(ctx, g.run.dev, share)
		if err != nil {
			return fmt.Errorf("split %s into %d shares: %w", g.run.dev.Kind, share, err)
		}
		// The chains are closed before their workers.
		defer func() {
			for _, j := range g.members {
				for _, c := range j.loadedByShare[share] {
					err = errors.Join(err, c.close())
				}
				delete(j.loadedByShare, share)
			}
			err = errors.Join(err, sh.Close())
		}()
		g.run.shareMethod = sh.Method()
		places = nil
		for i, e := range sh.Engines() {
			places = append(places, loadTarget{e, sh.Device(i), g.options.EngineOptions, g.options.FP16})
		}
	}

	// Load the models, and split their ranges into passes that fit into memory.
	passes := map[*modelJob][]rangePass{}
	maxPasses := 0
	for _, j := range g.members {
		if len(j.batches(share)) == 0 {
			continue
		}
		if err := g.load(ctx, j, share, places); err != nil {
			return err
		}
		passes[j] = g.splitPasses(j, share)
		maxPasses = max(maxPasses, len(passes[j]))
	}
	if maxPasses > 0 && g.run.copy == 0 {
		g.run.copy = g.copyRate()
	}
	for k := range maxPasses {
		s := g.sampler
		if !s.deadline.IsZero() { // every pass gets an equal part of the remaining time
			now := g.options.now()
			s.deadline = now.Add(s.deadline.Sub(now) / time.Duration(maxPasses-k))
		}
		if err := g.samplePass(ctx, &s, share, places, func(j *modelJob) (rangePass, bool) {
			if k >= len(passes[j]) {
				return nil, false
			}
			return passes[j][k], k == 0
		}); err != nil {
			return err
		}
	}
	return nil
}

// samplePass samples the probe sets of one pass. passOf returns which ranges of a job belong to the pass, and
// whether its blocks and the whole model do.
func (g *jobGroup) samplePass(ctx context.Context, s *sampler, share int, places []loadTarget, passOf func(*modelJob) (p rangePass, base bool)) (err error) {
	defer func() {
		for _, j := range g.members {
			for _, c := range j.loadedByShare[share] {
				err = errors.Join(err, c.closeRanges())
			}
		}
	}()

	lanes, err := g.openLanes(ctx, s, share, places, passOf)
	if err != nil || len(lanes) == 0 {
		return err
	}

	// The sampler reports its progress, says when it repeats a disturbed probe set, and saves each one that is
	// finished.
	var expect time.Duration
	for _, j := range g.members {
		expect += j.expectedTime
	}
	report := func(e Event, doneShare float64) {
		e.Share, e.DoneShare = share, g.progress.fraction(doneShare*float64(expect))
		g.progress.event(e)
	}
	s.progress = func(doneShare float64) { report(Event{Stage: StageSample}, doneShare) }
	s.shouldRetry = func(l *probeSet) bool {
		if l.busyness().factor <= busyFactor {
			return false
		}
		report(Event{Stage: StageSample, Model: l.job.info.name, Batch: l.key.batch, Text: "once more: other work had the processor"}, s.finishedShare(lanes))
		return true
	}
	s.onFinished = func(l *probeSet) error {
		g.run.recordResult(l)
		report(Event{Stage: StageMeasured, Model: l.job.info.name, Batch: l.key.batch, Text: l.stopReason}, s.finishedShare(lanes))
		return g.run.save()
	}

	// Sample all probe sets in turns.
	err = s.run(ctx, lanes)
	if err != nil && ctx.Err() != nil {
		return g.keepInterrupted(ctx, lanes)
	}
	return err
}

// openLanes loads and warms up the ranges of every model. Each batch size that has something to measure gets a probe
// set.
func (g *jobGroup) openLanes(ctx context.Context, s *sampler, share int, places []loadTarget, passOf func(*modelJob) (p rangePass, base bool)) ([]*probeSet, error) {
	var lanes []*probeSet
	for _, j := range g.members {
		p, base := passOf(j)
		if err := g.loadRanges(ctx, j, share, places, p); err != nil {
			return nil, err
		}
		for _, batch := range j.batches(share) {
			u := measurementKey{share, batch}
			withBlocks := base && j.measuresBlocks[u]
			if !withBlocks && len(p[u]) == 0 {
				continue
			}
			l := j.newProbeSet(u, withBlocks, p[u], isTimedByCPU(g.run.dev), g.options.letIdle)
			g.progress.event(Event{Stage: StageWarmUp, Model: j.info.name, Share: share, Batch: batch, DoneShare: g.progress.fraction(0)})
			if err := s.warmUp(ctx, l); err != nil {
				return nil, err
			}
			lanes = append(lanes, l)
		}
	}
	return lanes, nil
}

// keepInterrupted saves the usable samples of interrupted probe sets. Finished ones are saved already.
func (g *jobGroup) keepInterrupted(ctx context.Context, lanes []*probeSet) error {
	usable := false
	for _, l := range lanes {
		if l.stopReason == endInterrupted && l.roundCount >= interruptedRounds && l.loosestHalfWidth(g.options.Precision.Floor) <= interruptedLoose {
			g.run.recordResult(l)
			usable = true
		}
	}
	if !usable {
		return ctx.Err()
	}
	return errors.Join(ctx.Err(), g.run.save())
}

// An interrupted measurement is kept if it has at least this many rounds and is this tight. Otherwise the next run
// repeats it.
const (
	interruptedRounds = 10
	interruptedLoose  = 0.03
)
