package profiler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
)

// Run measures what Options ask for and the profile does not hold yet, and
// returns the profile. When the context ends it returns what was found so far
// together with the context's error; the file then holds the same.
func Run(ctx context.Context, o Options) (*formats.Profile, error) {
	if err := o.normalize(); err != nil {
		return nil, err
	}
	dev, err := selectDevice(o.Engine, o.Device)
	if err != nil {
		return nil, err
	}
	if o.DeviceName != "" {
		dev.Kind = o.DeviceName
	}
	if o.Ranges.Only {
		o.Shares = o.Ranges.shares(dev.Kind)
	}
	if most := o.Shares[len(o.Shares)-1]; most > 1 {
		if dev.IsCPU() {
			return nil, inputError("shares %v on %s: shares exist on GPUs only", o.Shares, dev.Kind)
		}
		if o.Sharer == nil {
			return nil, inputError("shares %v on %s: this program cannot start workers on shares of a GPU", o.Shares, dev.Kind)
		}
	}
	// Looked at before it is read: a write in between is seen, then.
	var written fs.FileInfo
	if o.Out != "" {
		written, _ = os.Stat(o.Out)
	}
	prof, err := existing(&o)
	if err != nil {
		return nil, err
	}
	r := &runner{o: &o, dev: dev, profile: prof, begun: o.now(), seen: map[string]bool{}, written: written}
	return prof, r.run(ctx)
}

// existing returns the profile to extend.
func existing(o *Options) (*formats.Profile, error) {
	if o.Profile != nil {
		return o.Profile, nil
	}
	fresh := &formats.Profile{Format: profileFormat, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
	if o.Out == "" {
		return fresh, nil
	}
	p, err := formats.ReadProfile(o.Out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Find out now, not after ten minutes of measuring, whether the file can
		// be written.
		dir := filepath.Dir(o.Out)
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return nil, inputError("output %s: %s is not a folder", o.Out, dir)
		}
		return fresh, nil
	case err != nil:
		return nil, fmt.Errorf("profile to extend: %w", err)
	}
	return p, nil
}

// unit is one Measurement to be made.
type unit struct{ share, batch int }

// job is one model of a run.
type job struct {
	m      model
	in     modelInfo
	entry  *formats.ProfileModel // what stands in the profile or will
	prior  bool                  // its blocks come from the profile
	added  bool                  // this run put it into the profile
	before []formats.Measurement // that the profile held of it when the run began
	// recorded: this run has measured it.
	recorded bool
	todo     []unit
	base     map[unit]bool // of those: blocks and whole are measured; else ranges alone
	whole    time.Duration // quick run at batch 1
	load     time.Duration // of the whole model
	expect   time.Duration // of everything, on a quiet machine

	cut    blocks
	chains map[int][]*chain // per share: one chain per copy
	memory map[unit]int64
}

// runner is one call of Run.
type runner struct {
	o       *Options
	dev     engine.Device
	profile *formats.Profile
	jobs    []*job
	begun   time.Time
	counted time.Duration // of the time since begun that is in CostSeconds
	shared  string        // how shares were made
	copy    float64
	ceilings
	watch *stateWatch
	busy  float64         // largest disturbance of a lane
	seen  map[string]bool // warnings given
	notes []subjectNote   // of this run
	// written is the file as this run read or wrote it last.
	written fs.FileInfo
	done    time.Duration // expected time of finished groups
	total   time.Duration
}

func (r *runner) event(e Event) {
	if r.o.Progress != nil {
		r.o.Progress(e)
	}
}

func (r *runner) warn(model, text string) {
	if !r.seen[text] {
		r.seen[text] = true
		r.event(Event{Stage: StageWarning, Model: model, Text: text, Done: r.fraction(0)})
	}
}

func (r *runner) fraction(group float64) float64 {
	if r.total <= 0 {
		return 0
	}
	return min(1, (float64(r.done)+group)/float64(r.total))
}

func (r *runner) run(ctx context.Context) error {
	if r.dev.IsCPU() {
		unpin, err := engine.PinThread(r.dev.CPUs...)
		if err != nil {
			return err
		}
		defer unpin()
		defer raisePriority()()
	} else {
		// What the CUDA provider keeps for a session (handles, captured graphs) it
		// keeps per thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	skipped := r.plan()
	if r.o.Ranges.Only && skipped == 0 && !slices.ContainsFunc(r.jobs, func(j *job) bool { return len(j.todo) > 0 }) {
		r.warn("", fmt.Sprintf("no range of blocks is asked for on %s, or the profile does not hold the blocks", r.dev.Kind))
	}
	todo := slices.DeleteFunc(slices.Clone(r.jobs), func(j *job) bool { return len(j.todo) == 0 })
	if len(todo) == 0 {
		return r.save()
	}
	est, err := r.estimate(ctx, todo)
	if err != nil {
		return err
	}
	est.Skipped = skipped
	if r.o.OnEstimate != nil {
		if err := r.o.OnEstimate(est); err != nil {
			return err
		}
	}
	for _, j := range todo {
		r.total += j.expect
	}
	if !r.knowsCeilings() {
		r.ceilings = r.o.ceilings(ctx, r.here())
	}
	r.watch = watchDevice(r.o, r.dev)
	defer r.watch.stop()
	groups := r.groups(todo)
	for i, g := range groups {
		if err := r.measure(ctx, g, groups[i:]); err != nil {
			return err
		}
		for _, j := range g {
			r.done += j.expect
			r.additivity(j)
			r.roofline(j)
		}
		if err := r.save(); err != nil {
			return err
		}
	}
	return nil
}

// open reads every model before anything is measured, so that a bad one is
// found at once.
func (r *runner) open(ctx context.Context) error {
	names := map[string]*job{}
	for _, path := range r.o.Models {
		r.event(Event{Stage: StageOpen, Model: path})
		m, err := r.o.open(ctx, path, r.o)
		if err != nil {
			return err
		}
		in := m.info()
		if have, ok := names[in.name]; ok {
			if have.in.sha256 == in.sha256 {
				continue // the same file twice
			}
			return inputError("two models are called %s: %s and %s: rename one file", in.name, have.in.path, in.path)
		}
		for _, w := range in.warnings {
			r.warn(in.name, w)
		}
		j := &job{m: m, in: in, base: map[unit]bool{}, chains: map[int][]*chain{}, memory: map[unit]int64{}}
		names[in.name] = j
		r.jobs = append(r.jobs, j)
	}
	return r.adopt()
}

// adopt looks the models up in the profile and takes over their cuts.
func (r *runner) adopt() error {
	now := provenance(r.dev, r.o.Engine.Info(), r.o, r.begun)
	stale := false
	for _, d := range r.profile.Devices {
		if d.Device == r.dev.Kind && !sameProvenance(d, now) {
			stale = true
			r.warn("", fmt.Sprintf("%s was measured with %s: what is asked for is measured again, and numbers of other models on it are no longer comparable",
				d.Device, describe(d)))
		}
	}
	for _, j := range r.jobs {
		fresh := &formats.ProfileModel{
			Model: j.in.name, Source: &formats.ModelSource{Path: relativeTo(r.o.Out, j.in.path), SHA256: j.in.sha256},
			Inputs: tensorInfos(j.in.inputs), Outputs: tensorInfos(j.in.outputs),
		}
		j.entry = fresh
		have := findModel(r.profile, fresh)
		if have != nil {
			j.before = slices.Clone(have.Measurements)
		}
		switch {
		case have == nil:
			continue
		case !sameSource(have, fresh):
			r.warn(j.in.name, fmt.Sprintf("%s: the file differs from the one that was measured: its old numbers are replaced", j.in.name))
			continue
		}
		others := slices.ContainsFunc(have.Measurements, func(m formats.Measurement) bool { return m.Device != r.dev.Kind })
		want := min(r.o.Blocks, j.m.atoms())
		if len(have.Blocks) != want {
			if others && !r.o.Force {
				return inputError("%s is cut into %d blocks in the profile, which holds numbers of another device for them; %d were asked for: use --blocks %d, or --force to drop them",
					j.in.name, len(have.Blocks), want, len(have.Blocks))
			}
			r.warn(j.in.name, fmt.Sprintf("%s: cut into %d blocks instead of %d: its old numbers are replaced", j.in.name, want, len(have.Blocks)))
			continue
		}
		if have.Inputs != nil && !sameShapes(have.Inputs, fresh.Inputs) {
			if others && !r.o.Force {
				return inputError("%s was measured with inputs %s in the profile, %s were asked for: write another profile (-o), or --force to drop the old numbers",
					j.in.name, shapes(have.Inputs), shapes(fresh.Inputs))
			}
			r.warn(j.in.name, fmt.Sprintf("%s: inputs %s instead of %s: its old numbers are replaced", j.in.name, shapes(fresh.Inputs), shapes(have.Inputs)))
			continue
		}
		cut, err := j.m.at(cutNames(have.Blocks))
		if err != nil {
			if others && !r.o.Force {
				return fmt.Errorf("%w: the profile's blocks of %s cannot be made again: %w (--force cuts it anew and drops what was measured)", ErrInput, j.in.name, err)
			}
			r.warn(j.in.name, fmt.Sprintf("%s: cut anew, its old numbers are replaced: %v", j.in.name, err))
			continue
		}
		j.cut, j.prior = cut, true
		fresh.Blocks = slices.Clone(have.Blocks)
		if !stale {
			fresh.FP16 = have.FP16
		}
		fresh.Measurements = slices.Clone(have.Measurements)
		if stale {
			dropMeasurements(fresh, r.dev.Kind)
		}
	}
	return nil
}

func describe(d formats.ProfileDevice) string {
	return strings.Join(slices.DeleteFunc([]string{d.Name, d.Driver, d.Engine + " " + d.EngineVersion, d.Method}, func(s string) bool { return s == "" }), ", ")
}

func sameShapes(a, b []formats.TensorInfo) bool {
	return slices.EqualFunc(a, b, func(x, y formats.TensorInfo) bool {
		return x.Name == y.Name && x.DType == y.DType && slices.Equal(x.Shape, y.Shape)
	})
}

func shapes(list []formats.TensorInfo) string {
	var s []string
	for _, t := range list {
		s = append(s, fmt.Sprintf("%s %v", t.Name, t.Shape))
	}
	return strings.Join(s, ", ")
}

func cutNames(blocks []formats.Block) [][]string {
	var out [][]string
	for _, b := range blocks[:max(0, len(blocks)-1)] {
		var names []string
		for _, t := range b.Cut {
			names = append(names, t.Name)
		}
		out = append(out, names)
	}
	return out
}

// plan decides what is measured, and returns how many measurements are there
// already.
func (r *runner) plan() (skipped int) {
	for _, j := range r.jobs {
		for _, u := range r.units(j) {
			held := j.prior && measurement(j.entry, r.dev.Kind, u.share, u.batch) != nil
			if j.base[u] = !r.o.Ranges.Only && (r.o.Force || !held); j.base[u] || len(r.missing(j, u)) > 0 {
				j.todo = append(j.todo, u)
				continue
			}
			skipped++
			r.event(Event{Stage: StageSkipped, Model: j.in.name, Share: u.share, Batch: u.batch, Text: "measured already"})
		}
	}
	return skipped
}

// units lists what is asked for of a model: those of the options, or what the
// profile holds where only ranges are asked for.
func (r *runner) units(j *job) []unit {
	var out []unit
	if r.o.Ranges.Only {
		for i := range j.entry.Measurements {
			m := &j.entry.Measurements[i]
			if m.Device == r.dev.Kind && len(r.o.Ranges.Of(j.entry, m.Device, m.Share, m.Batch)) > 0 {
				out = append(out, unit{m.Share, m.Batch})
			}
		}
		return out
	}
	batches := r.o.Batches
	if j.in.batch > 0 {
		batches = []int{j.in.batch}
	}
	for _, share := range r.o.Shares {
		for _, batch := range batches {
			out = append(out, unit{share, batch})
		}
	}
	return out
}

// knowsCeilings tells whether the profile has what the GPU reaches at best: it
// costs seconds to measure. (A CPU is measured anew: others may be using it.)
func (r *runner) knowsCeilings() bool {
	now := provenance(r.dev, r.o.Engine.Info(), r.o, r.begun)
	return !r.dev.IsCPU() && !r.o.Force && slices.ContainsFunc(r.profile.Devices, func(d formats.ProfileDevice) bool {
		return d.Device == r.dev.Kind && d.MemoryGBps > 0 && d.MatmulGflops > 0 && sameProvenance(d, now)
	})
}

func (r *runner) here() place { return place{r.o.Engine, r.dev, r.o.EngineOptions, r.o.Half} }

// quickBatch is the batch of quick runs.
func (j *job) quickBatch() int { return max(1, j.in.batch) }

// estimate runs every model once.
func (r *runner) estimate(ctx context.Context, jobs []*job) (Estimate, error) {
	est := Estimate{Device: r.dev.Kind, Name: r.dev.Name, Budget: r.o.Budget}
	var least time.Duration // loading and the fewest samples, whatever the budget
	for _, j := range jobs {
		if err := r.quick(ctx, j); err != nil {
			return est, err
		}
		n := min(r.o.Blocks, j.m.atoms())
		runs := 0.0
		for _, u := range j.todo {
			wholes := 1.0
			if j.base[u] {
				wholes = 2 // the blocks
			}
			for _, b := range r.missing(j, u) {
				wholes += float64(b[1]-b[0]) / float64(n)
			}
			runs += wholes * float64(u.batch*u.share)
		}
		round := time.Duration(runs * float64(j.whole) / float64(j.quickBatch()))
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
			prepare += 2*j.load + (atomRounds+4)*j.whole
		}
		if r.wantsFP16(j) {
			prepare += time.Duration(float64(r.o.FP16Samples)*(float64(n)/2+1)) * j.whole
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

// quick loads the whole model and runs it twice; the second run counts. What
// the engine cannot execute is found here, before the long work.
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
	b, err := bindChain(c.blocks, j.quickBatch(), 0)
	if err != nil {
		return fmt.Errorf("%s: %w", j.in.path, err)
	}
	c.bound = map[int]*bound{1: {blocks: b}}
	for range 2 {
		t, err := b[0].RunN(1)
		if err != nil {
			return fmt.Errorf("%s: %w", j.in.path, err)
		}
		_, j.whole = t.PerRun()
	}
	return nil
}

// Limits of a group: models in a group are loaded at the same time, and a
// group's numbers reach the file when they are tight.
const (
	groupTime    = 4 * time.Minute
	groupMemory  = int64(4) << 30
	memoryFactor = 4 // blocks and whole, prepacked weights, activations
)

// groups puts models together that are sampled in turns.
func (r *runner) groups(jobs []*job) [][]*job {
	room := groupMemory
	if r.dev.MemoryBytes > 0 {
		room = r.dev.MemoryBytes / 3
	}
	if !r.dev.IsCPU() {
		// Weights are there once per batch size, and activations of large batches
		// outweigh them; time on a GPU of one's own drifts little.
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

// deadline is when the first group of the rest has to stop sampling: the
// budget's rest is split by the expected cost, so that all get as many rounds.
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

// measure prepares the models of one group and takes their samples.
func (r *runner) measure(ctx context.Context, group []*job, rest [][]*job) (err error) {
	deadline := r.deadline(rest)
	defer func() {
		for _, j := range group {
			for _, copies := range j.chains {
				for _, c := range copies {
					err = errors.Join(err, c.close())
				}
			}
			clear(j.chains)
		}
	}()
	s := &sampler{rule: r.o.Precision, now: r.o.now, turn: r.o.turn, deadline: deadline}
	for _, j := range group {
		if err := r.prepare(ctx, j); err != nil {
			return err
		}
	}
	for _, share := range r.o.Shares {
		if err := r.sampleShare(ctx, s, group, share); err != nil {
			return err
		}
	}
	return nil
}

// sampleShare samples all lanes of a group at one share.
func (r *runner) sampleShare(ctx context.Context, s *sampler, group []*job, share int) (err error) {
	places := []place{r.here()}
	if share > 1 && slices.ContainsFunc(group, func(j *job) bool { return len(j.batches(share)) > 0 }) {
		sh, err := r.o.Sharer.Open(ctx, r.dev, share)
		if err != nil {
			return fmt.Errorf("split %s into %d shares: %w", r.dev.Kind, share, err)
		}
		// The chains are closed before their workers.
		defer func() {
			for _, j := range group {
				for _, c := range j.chains[share] {
					err = errors.Join(err, c.close())
				}
				delete(j.chains, share)
			}
			err = errors.Join(err, sh.Close())
		}()
		r.shared = sh.Method()
		places = nil
		for i, e := range sh.Engines() {
			places = append(places, place{e, sh.Device(i), r.o.EngineOptions, r.o.Half})
		}
	}
	passes := map[*job][]pass{}
	most := 0
	for _, j := range group {
		if len(j.batches(share)) == 0 {
			continue
		}
		if err := r.load(ctx, j, share, places); err != nil {
			return err
		}
		passes[j] = r.passes(j, share)
		most = max(most, len(passes[j]))
	}
	if most > 0 && r.copy == 0 {
		r.copy = r.copyRate(group)
	}
	for k := range most {
		of := *s
		if !s.deadline.IsZero() { // every pass gets as much of what is left
			now := r.o.now()
			of.deadline = now.Add(s.deadline.Sub(now) / time.Duration(most-k))
		}
		if err := r.samplePass(ctx, &of, group, share, places, func(j *job) (pass, bool) {
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

// samplePass samples the lanes of one pass over a group: of says which ranges of
// a job belong to it, and whether blocks and whole do.
func (r *runner) samplePass(ctx context.Context, s *sampler, group []*job, share int, places []place, of func(*job) (p pass, base bool)) (err error) {
	defer func() {
		for _, j := range group {
			for _, c := range j.chains[share] {
				err = errors.Join(err, c.closeRanges())
			}
		}
	}()
	var lanes []*lane
	owner := map[*lane]*job{}
	at := map[*lane]unit{}
	var expect time.Duration
	for _, j := range group {
		expect += j.expect
		p, base := of(j)
		if err := r.loadRanges(ctx, j, share, places, p); err != nil {
			return err
		}
		for _, batch := range j.batches(share) {
			u := unit{share, batch}
			if !(base && j.base[u]) && len(p[u]) == 0 {
				continue
			}
			l := j.lane(u, base && j.base[u], p[u], countsCPU(r.dev))
			r.event(Event{Stage: StageWarmUp, Model: j.in.name, Share: share, Batch: batch, Done: r.fraction(0)})
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
	s.progress = func(done float64) {
		r.event(Event{Stage: StageSample, Share: share, Done: r.fraction(done * float64(expect))})
	}
	s.again = func(l *lane) bool {
		x := l.strain()
		if x.factor <= busyFactor {
			return false
		}
		r.event(Event{Stage: StageSample, Model: owner[l].in.name, Share: share, Batch: at[l].batch, Text: "once more: other work had the processor", Done: r.fraction(s.share(lanes) * float64(expect))})
		return true
	}
	s.finished = func(l *lane) error {
		u := at[l]
		r.record(owner[l], u, l)
		r.event(Event{Stage: StageMeasured, Model: owner[l].in.name, Share: u.share, Batch: u.batch, Text: l.ended,
			Done: r.fraction(s.share(lanes) * float64(expect))})
		return r.save()
	}
	if err := s.run(ctx, lanes); err != nil {
		if ctx.Err() == nil {
			return err
		}
		// Keep what is usable of the broken-off lanes.
		for _, l := range lanes {
			if l.ended == endInterrupted && l.rounds >= interruptedRounds && l.loosest(r.o.Precision.Floor) <= interruptedLoose {
				r.record(owner[l], at[l], l)
			}
		}
		return errors.Join(ctx.Err(), r.save())
	}
	return nil
}

// A broken-off measurement is kept where it has this many samples and is this
// tight; otherwise the next run makes it again.
const (
	interruptedRounds = 10
	interruptedLoose  = 0.03
)

// batches lists what is to be measured at a share, ascending.
func (j *job) batches(share int) []int {
	var out []int
	for _, u := range j.todo {
		if u.share == share {
			out = append(out, u.batch)
		}
	}
	return out
}
