package profiler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats/document"
)

// Limits of a group. The models of a group are loaded at the same time, and their numbers are written to the file
// as soon as they are tight.
const (
	groupTime    = 4 * time.Minute
	groupMemory  = int64(4) << 30
	memoryFactor = 4 // of the weights: blocks and whole model, prepacked weights, activations
)

// groupJobs divides the models into groups, in their order. The models of a group are loaded together and sampled in
// turns, so that slow changes of the machine affect all alike. A group ends when the next model would exceed its
// memory or time. expectedTime of each job, from estimate, is its time.
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

// deadline returns when the first of the remaining groups (models that are measured together) has to stop sampling,
// or the zero time without a budget. The rest of the budget is split among them by expected time, so that all groups
// get as many rounds.
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
	run     *runner
	members []*modelJob
	sampler sampler // template for the samplers of all passes
}

// newGroup makes a group, the models that are loaded at the same time and measured in turns. Its sampling stops at a
// deadline.
func (r *runner) newGroup(members []*modelJob, deadline time.Time) *jobGroup {
	s := sampler{rule: r.options.Precision, now: r.options.now, turn: r.options.turn, deadline: deadline}
	if isTimedByCPU(r.dev) {
		s.measureReference = r.options.measureReference
	}
	return &jobGroup{run: r, members: members, sampler: s}
}

// measure prepares the models of the group, takes their samples at one share after the other, and unloads them. The
// group is a jobGroup: models that are in memory together.
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
	for _, share := range g.run.options.Shares {
		if err := g.sampleShare(ctx, share); err != nil {
			return err
		}
	}
	return nil
}

// sampleShare takes all samples at one share: 1 for the whole device, v for 1/v of it. For a part of a device it
// starts v worker processes and loads every model into each, so that all parts are busy. places are where copies of
// a model are loaded.
func (g *jobGroup) sampleShare(ctx context.Context, share int) (err error) {
	places := []loadTarget{g.run.target()}
	if share > 1 && slices.ContainsFunc(g.members, func(j *modelJob) bool { return len(j.batches(share)) > 0 }) {
		sh, err := g.run.options.Sharer.Open(ctx, g.run.dev, share)
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
			places = append(places, loadTarget{e, sh.Device(i), g.run.options.EngineOptions, g.run.options.FP16})
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
	// Sample pass by pass. Blocks and whole models belong to the first pass.
	for k := range maxPasses {
		s := g.sampler
		if !s.deadline.IsZero() { // every pass gets an equal part of the remaining time
			now := g.run.options.now()
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

// sampledModels returns the name of the group's model, or how many models the group samples in turn.
func (g *jobGroup) sampledModels() string {
	if len(g.members) == 1 {
		return g.members[0].info.name
	}
	return document.CountOf(len(g.members), "model")
}

// samplePass samples the probe sets of one pass: the blocks, ranges of blocks and whole models that are loaded at the
// same time. passOf returns which ranges of a model belong to the pass, and whether its blocks and the whole model do
// (base). share is v for 1/v of a device, and places are the engines that hold a copy of each model. Finished sets
// are recorded and saved one by one, so that an interrupted run loses little. If the context ends, the samples of
// open sets are recorded as well where they are enough, and its error is returned.
func (g *jobGroup) samplePass(ctx context.Context, s *sampler, share int, places []loadTarget, passOf func(*modelJob) (p rangePass, base bool)) (err error) {
	defer func() {
		for _, j := range g.members {
			for _, c := range j.loadedByShare[share] {
				err = errors.Join(err, c.closeRanges())
			}
		}
	}()

	// Load and warm up the ranges of every model. Each batch size that has something to measure gets a probe set.
	var sets []*probeSet
	owner := map[*probeSet]*modelJob{}
	keys := map[*probeSet]measurementKey{}
	var expectedTime time.Duration
	for _, j := range g.members {
		expectedTime += j.expectedTime
		p, base := passOf(j)
		if err := g.loadRanges(ctx, j, share, places, p); err != nil {
			return err
		}
		for _, batch := range j.batches(share) {
			key := measurementKey{share, batch}
			// Skip a batch of which neither blocks nor ranges are to be measured in this pass.
			if !(base && j.measuresBlocks[key]) && len(p[key]) == 0 {
				continue
			}
			set := j.newProbeSet(key, base && j.measuresBlocks[key], p[key], isTimedByCPU(g.run.dev), g.run.options.letIdle)
			g.run.progress.event(Event{Stage: StageWarmUp, Model: j.info.name, Share: share, Batch: batch, DoneShare: g.run.progress.fraction(0)})
			if err := s.warmUp(ctx, set); err != nil {
				return err
			}
			sets = append(sets, set)
			owner[set], keys[set] = j, key
		}
	}
	if len(sets) == 0 {
		return nil
	}

	// The sampler reports its progress, says when it repeats a disturbed probe set, and saves each one that is
	// finished.
	s.progress = func(doneShare float64) {
		g.run.progress.event(Event{Stage: StageSample, Model: g.sampledModels(), Share: share, DoneShare: g.run.progress.fraction(doneShare * float64(expectedTime))})
	}
	s.shouldRetry = func(set *probeSet) bool {
		x := set.busyness()
		if x.factor <= busyFactor {
			return false
		}
		g.run.progress.event(Event{Stage: StageSample, Model: owner[set].info.name, Share: share, Batch: keys[set].batch, Text: "once more: other work had the processor", DoneShare: g.run.progress.fraction(s.finishedShare(sets) * float64(expectedTime))})
		return true
	}
	s.onFinished = func(set *probeSet) error {
		key := keys[set]
		g.run.recordResult(owner[set], key, set)
		g.run.progress.event(Event{Stage: StageMeasured, Model: owner[set].info.name, Share: key.share, Batch: key.batch, Text: set.stopReason,
			DoneShare: g.run.progress.fraction(s.finishedShare(sets) * float64(expectedTime))})
		return g.run.save()
	}

	// Sample all probe sets in turns.
	if err := s.run(ctx, sets); err != nil {
		if ctx.Err() == nil {
			return err
		}
		// Keep the samples of interrupted probe sets. Finished ones are saved already.
		usable := false
		for _, set := range sets {
			if set.stopReason != endInterrupted || set.roundCount == 0 {
				continue
			}
			set.isPartial = set.roundCount < interruptedRounds || set.loosestHalfWidth(g.run.options.Precision.Floor) > interruptedLoose
			if set.isPartial && g.run.holdsBetter(owner[set], keys[set], set.roundCount) {
				continue
			}
			if set.blockCount > 0 || !set.isPartial {
				g.run.recordResult(owner[set], keys[set], set)
				usable = true
			}
		}
		if !usable {
			return ctx.Err()
		}
		return errors.Join(ctx.Err(), g.run.save())
	}
	return nil
}

// An interrupted measurement counts as finished if it has at least this many rounds and is this tight. Otherwise it is
// kept with a note, and the next run repeats it. Of ranges it is not kept: they stand beside finished blocks.
const (
	interruptedRounds = 10
	interruptedLoose  = 0.03
)
