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
func (r *runner) groups(jobs []*job) [][]*job {
	room := groupMemory
	if r.dev.MemoryBytes > 0 {
		room = r.dev.MemoryBytes / 3
	}
	if !r.dev.IsCPU() {
		// A GPU holds the weights once per batch size, and activations of large batches need more memory than
		// weights. So each model is a group by itself: a GPU that nobody else uses drifts little in time.
		room = 0
	}
	var out [][]*job
	var used int64
	var span time.Duration
	for _, j := range jobs {
		need := memoryFactor * j.in.weightBytes
		if n := len(out); n > 0 && used+need <= room && span+j.expect <= groupTime {
			out[n-1] = append(out[n-1], j)
			used += need
			span += j.expect
			continue
		}
		out = append(out, []*job{j})
		used, span = need, j.expect
	}
	return out
}

// deadline returns when the first of the remaining groups has to stop sampling. The remaining budget is split by
// expected cost, so that all groups get as many rounds.
func (r *runner) deadline(rest [][]*job) time.Time {
	if r.o.Budget <= 0 {
		return time.Time{}
	}
	var first, all time.Duration
	for i, g := range rest {
		for _, j := range g {
			all += j.expect
			if i == 0 {
				first += j.expect
			}
		}
	}
	now := r.o.now()
	left := r.begun.Add(r.o.Budget).Sub(now)
	return now.Add(time.Duration(float64(left) * float64(first) / math.Max(1, float64(all))))
}

// jobGroup is the measuring of models that are loaded at the same time and sampled in turns.
type group struct {
	*runner
	members []*job
	sampler sampler // template for the samplers of all passes
}

// newGroup makes a group whose sampling stops at a deadline.
func (r *runner) newGroup(members []*job, deadline time.Time) *group {
	s := sampler{rule: r.o.Precision, now: r.o.now, turn: r.o.turn, deadline: deadline}
	if countsCPU(r.dev) {
		s.beside = newReference().took
	}
	return &group{runner: r, members: members, sampler: s}
}

// measure prepares the models and takes their samples.
func (g *group) measure(ctx context.Context) (err error) {
	defer func() {
		for _, j := range g.members {
			for _, copies := range j.chains {
				for _, c := range copies {
					err = errors.Join(err, c.close())
				}
			}
			clear(j.chains)
		}
	}()
	for _, j := range g.members {
		if err := g.prepare(ctx, j); err != nil {
			return err
		}
	}
	for _, share := range g.o.Shares {
		if err := g.sampleShare(ctx, share); err != nil {
			return err
		}
	}
	return nil
}

// sampleShare samples all lanes at one share.
func (g *group) sampleShare(ctx context.Context, share int) (err error) {
	places := []place{g.here()}
	if share > 1 && slices.ContainsFunc(g.members, func(j *job) bool { return len(j.batches(share)) > 0 }) {
		sh, err := g.o.Sharer.Open(ctx, g.dev, share)
		if err != nil {
			return fmt.Errorf("split %s into %d shares: %w", g.dev.Kind, share, err)
		}
		// The chains are closed before their workers.
		defer func() {
			for _, j := range g.members {
				for _, c := range j.chains[share] {
					err = errors.Join(err, c.close())
				}
				delete(j.chains, share)
			}
			err = errors.Join(err, sh.Close())
		}()
		g.shared = sh.Method()
		places = nil
		for i, e := range sh.Engines() {
			places = append(places, place{e, sh.Device(i), g.o.EngineOptions, g.o.Half})
		}
	}

	// Load the models, and split their ranges into passes that fit into memory.
	passes := map[*job][]pass{}
	most := 0
	for _, j := range g.members {
		if len(j.batches(share)) == 0 {
			continue
		}
		if err := g.load(ctx, j, share, places); err != nil {
			return err
		}
		passes[j] = g.passes(j, share)
		most = max(most, len(passes[j]))
	}
	if most > 0 && g.copy == 0 {
		g.copy = g.copyRate()
	}
	for k := range most {
		s := g.sampler
		if !s.deadline.IsZero() { // every pass gets an equal part of the remaining time
			now := g.o.now()
			s.deadline = now.Add(s.deadline.Sub(now) / time.Duration(most-k))
		}
		if err := g.samplePass(ctx, &s, share, places, func(j *job) (pass, bool) {
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
func (g *group) samplePass(ctx context.Context, s *sampler, share int, places []place, of func(*job) (p pass, base bool)) (err error) {
	defer func() {
		for _, j := range g.members {
			for _, c := range j.chains[share] {
				err = errors.Join(err, c.closeRanges())
			}
		}
	}()

	// Load and warm up the ranges of every model. Each batch size that has something to measure gets a probe set.
	var lanes []*lane
	owner := map[*lane]*job{}
	at := map[*lane]unit{}
	var expect time.Duration
	for _, j := range g.members {
		expect += j.expect
		p, base := of(j)
		if err := g.loadRanges(ctx, j, share, places, p); err != nil {
			return err
		}
		for _, batch := range j.batches(share) {
			u := unit{share, batch}
			if !(base && j.base[u]) && len(p[u]) == 0 {
				continue
			}
			l := j.lane(u, base && j.base[u], p[u], countsCPU(g.dev), g.o.rest)
			g.event(Event{Stage: StageWarmUp, Model: j.in.name, Share: share, Batch: batch, Done: g.fraction(0)})
			if err := s.warmUp(ctx, l); err != nil {
				return err
			}
			lanes = append(lanes, l)
			owner[l], at[l] = j, u
		}
	}
	if len(lanes) == 0 {
		return nil
	}

	// The sampler reports its progress, says when it repeats a disturbed probe set, and saves each one that is
	// finished.
	s.progress = func(done float64) {
		g.event(Event{Stage: StageSample, Share: share, Done: g.fraction(done * float64(expect))})
	}
	s.again = func(l *lane) bool {
		x := l.strain()
		if x.factor <= busyFactor {
			return false
		}
		g.event(Event{Stage: StageSample, Model: owner[l].in.name, Share: share, Batch: at[l].batch, Text: "once more: other work had the processor", Done: g.fraction(s.share(lanes) * float64(expect))})
		return true
	}
	s.finished = func(l *lane) error {
		u := at[l]
		g.record(owner[l], u, l)
		g.event(Event{Stage: StageMeasured, Model: owner[l].in.name, Share: u.share, Batch: u.batch, Text: l.ended,
			Done: g.fraction(s.share(lanes) * float64(expect))})
		return g.save()
	}

	// Sample all probe sets in turns.
	if err := s.run(ctx, lanes); err != nil {
		if ctx.Err() == nil {
			return err
		}
		// Keep the usable samples of interrupted probe sets. Finished ones are saved already.
		usable := false
		for _, l := range lanes {
			if l.ended == endInterrupted && l.rounds >= interruptedRounds && l.loosest(g.o.Precision.Floor) <= interruptedLoose {
				g.record(owner[l], at[l], l)
				usable = true
			}
		}
		if !usable {
			return ctx.Err()
		}
		return errors.Join(ctx.Err(), g.save())
	}
	return nil
}

// An interrupted measurement is kept if it has at least this many rounds and is this tight. Otherwise the next run
// repeats it.
const (
	interruptedRounds = 10
	interruptedLoose  = 0.03
)
