package profiler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"inferplan/engine"
	"inferplan/formats"
)

// Run measures what the options request and the profile does not have yet, and returns the profile. If the context
// ends, it returns what was measured until then, together with the context's error; the file then has the same
// contents.
func Run(ctx context.Context, o Options) (*formats.Profile, error) {
	if err := o.normalize(); err != nil {
		return nil, err
	}

	// Choose the device, and check that the options suit it.
	dev, err := selectDevice(o.Engine, o.Device)
	if err != nil {
		return nil, err
	}
	if o.DeviceName != "" {
		dev.Kind = o.DeviceName
	}
	if o.RealTime && !isTimedByCPU(dev) {
		return nil, inputError("real-time priority on %s: it is for CPUs of one thread", dev.Kind)
	}
	if o.Ranges.OnlyRanges {
		o.Shares = o.Ranges.sharesOn(dev.Kind)
	}
	if maxShare := o.Shares[len(o.Shares)-1]; maxShare > 1 {
		if dev.IsCPU() {
			return nil, inputError("shares %v on %s: shares exist on GPUs only", o.Shares, dev.Kind)
		}
		if o.Sharer == nil {
			return nil, inputError("shares %v on %s: this program cannot start workers on shares of a GPU", o.Shares, dev.Kind)
		}
	}

	// Read the profile to extend. Look at the file before reading it, so that a write in between is noticed.
	var lastWrite fs.FileInfo
	if o.OutPath != "" {
		lastWrite, _ = os.Stat(o.OutPath)
	}
	prof, err := profileToExtend(&o)
	if err != nil {
		return nil, err
	}
	o.Profile = prof
	r := &runner{options: &o, dev: dev, profile: prof, begun: o.now(), lastWrite: lastWrite, progress: progress{report: o.Progress}}
	return prof, r.run(ctx)
}

// profileToExtend returns the profile that the run extends: that of the options, that of the file, or an empty
// one.
func profileToExtend(o *Options) (*formats.Profile, error) {
	if o.Profile != nil {
		return o.Profile, nil
	}
	empty := &formats.Profile{Format: profileFormat, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
	if o.OutPath == "" {
		return empty, nil
	}
	p, err := formats.ReadProfile(o.OutPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Check now, not after ten minutes of measuring, that the file can be written.
		dir := filepath.Dir(o.OutPath)
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return nil, inputError("output %s: %s is not a folder", o.OutPath, dir)
		}
		return empty, nil
	case err != nil:
		return nil, fmt.Errorf("profile to extend: %w", err)
	}
	return p, nil
}

// measurementKey identifies a Measurement of a model on the run's device.
type measurementKey struct{ share, batch int }

// modelJob is the work of a run on one model.
type modelJob struct {
	m               model
	info            modelInfo
	entry           *formats.ProfileModel // the model's entry, in the profile already or added later
	hasProfileCut   bool                  // the blocks are cut as in the profile
	isAdded         bool                  // this run added the model to the profile
	oldMeasurements []formats.Measurement // measurements of the model in the profile when the run began
	// isRecorded says that this run has measured the model.
	isRecorded     bool
	todo           []measurementKey
	measuresBlocks map[measurementKey]bool // by key of todo, whether blocks and the uncut model are measured, and not only ranges
	wholeTime      time.Duration           // the time of a quick run at batch 1
	loadTime       time.Duration           // the time to load the uncut model
	expectedTime   time.Duration           // the expected time of the complete job, on a quiet machine

	cut           cutModel
	loadedByShare map[int][]*loadedModel // the loaded copies of the model, by share
	memory        map[measurementKey]int64
}

// runner is the state of one call of Run.
type runner struct {
	options        *Options
	dev            engine.Device
	profile        *formats.Profile
	jobs           []*modelJob
	refusals       refusals
	begun          time.Time
	chargedTime    time.Duration // part of the time since begun that is in CostSeconds already
	shareMethod    string        // the method by which shares were made
	copy           float64
	ceilings       ceilings
	watch          *stateWatch
	maxDisturbance float64       // largest disturbance of a probe set
	notes          []subjectNote // notes of this run
	// lastWrite is the state of the file when this run read or wrote it last.
	lastWrite fs.FileInfo
	progress  progress
}

// run does the steps of Run: it pins the thread, opens the models, estimates the time, and measures the models group by
// group.
func (r *runner) run(ctx context.Context) error {
	if r.dev.IsCPU() {
		unpin, err := engine.PinThread(r.dev.CPUs...)
		if err != nil {
			return err
		}
		defer unpin()
		undo, err := prioritise(r.options.RealTime)
		if err != nil {
			return err
		}
		defer undo()
	} else {
		// The CUDA provider keeps the data of a session (handles, captured graphs) per thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}

	// Open the models, and find out what is still to be measured.
	if err := r.openModels(ctx); err != nil {
		return err
	}
	skipped := r.planMeasurements()
	if r.options.Ranges.OnlyRanges && skipped == 0 && !slices.ContainsFunc(r.jobs, func(j *modelJob) bool { return len(j.todo) > 0 }) {
		return fmt.Errorf("%w on %s, or the profile does not hold these blocks there: nothing was measured", errNoRange, r.dev.Kind)
	}
	todo := slices.DeleteFunc(slices.Clone(r.jobs), func(j *modelJob) bool { return len(j.todo) == 0 })
	if len(todo) == 0 {
		return r.save()
	}

	// Estimate the time, and let the caller decide whether to go on.
	est, err := r.estimate(ctx, todo)
	if err != nil {
		return err
	}
	if len(r.jobs) == 0 {
		return r.refusals.noModel()
	}
	todo = slices.DeleteFunc(todo, func(j *modelJob) bool { return !slices.Contains(r.jobs, j) })
	est.SkippedMeasurements = skipped
	if r.options.OnEstimate != nil {
		if err := r.options.OnEstimate(est); err != nil {
			return err
		}
	}
	for _, j := range todo {
		r.progress.totalTime += j.expectedTime
	}
	if !r.knowsCeilings() {
		r.ceilings = r.options.ceilings(ctx, r.target())
	}
	r.watch = watchDevice(r.options, r.dev)
	defer r.watch.stop()

	// Measure group by group, and save the profile after each.
	groups := r.groupJobs(todo)
	for i, members := range groups {
		if err := r.newGroup(members, r.deadline(groups[i:])).measure(ctx); err != nil {
			return err
		}
		for _, j := range members {
			r.progress.finishedTime += j.expectedTime
			r.noteCutCost(j)
			r.noteRoofline(j)
		}
		if err := r.save(); err != nil {
			return err
		}
	}
	return nil
}

// openModels reads every model before anything is measured, so that a bad file is found at once.
func (r *runner) openModels(ctx context.Context) error {
	names := map[string]*modelJob{}

	// Open every model at each of its sizes. Names must be unique.
	for _, path := range r.options.Models {
		r.progress.event(Event{Stage: StageOpen, Model: path})
		sizes, err := openVariants(ctx, r, path)
		if err != nil {
			if err := r.refusals.refuse(r, err); err != nil {
				return err
			}
			continue
		}
		for _, v := range sizes {
			if sameName, ok := names[v.info.name]; ok {
				if sameName.info.sha256 == v.info.sha256 {
					continue // the same file, named twice
				}
				return inputError("two models are called %s: %s and %s: rename one file", v.info.name, sameName.info.path, v.info.path)
			}
			for _, w := range v.info.warnings {
				r.progress.warn(v.info.name, w)
			}
			j := &modelJob{m: v.m, info: v.info, measuresBlocks: map[measurementKey]bool{}, loadedByShare: map[int][]*loadedModel{}, memory: map[measurementKey]int64{}}
			names[v.info.name] = j
			r.jobs = append(r.jobs, j)
		}
	}

	// Check the options' names against the models, and take over what the profile has.
	if len(r.jobs) == 0 {
		return r.refusals.noModel()
	}
	if err := checkAllUsed(r); err != nil {
		return err
	}
	if err := r.adoptCuts(); err != nil {
		return err
	}
	return checkPadding(ctx, r)
}

// planMeasurements decides what is measured: it fills the todo list of each job with the (share, batch) pairs that
// are requested and that the profile lacks. It returns how many of the requested measurements the profile has
// already. measuresBlocks says that blocks and whole model are measured there, not only ranges of blocks.
func (r *runner) planMeasurements() (skipped int) {
	for _, j := range r.jobs {
		for _, key := range r.requestedKeys(j) {
			isHeld := j.hasProfileCut && j.entry.FindMeasurement(r.dev.Kind, key.share, key.batch) != nil && !r.isPartial(j, key)
			// missingRanges reads measuresBlocks, so set it first.
			j.measuresBlocks[key] = !r.options.Ranges.OnlyRanges && (r.options.Force || !isHeld)
			if j.measuresBlocks[key] || len(r.missingRanges(j, key)) > 0 {
				j.todo = append(j.todo, key)
				continue
			}
			skipped++
			r.progress.event(Event{Stage: StageSkipped, Model: j.info.name, Share: key.share, Batch: key.batch, Text: "measured already"})
		}
	}
	return skipped
}

// requestedKeys returns the measurements that are requested of a model: those of the options or, if only ranges are
// requested, those that the profile has. A key is a share (v for 1/v of the device) and a batch size. A model whose
// batch is fixed has only that one.
func (r *runner) requestedKeys(j *modelJob) []measurementKey {
	var out []measurementKey
	if r.options.Ranges.OnlyRanges {
		for i := range j.entry.Measurements {
			m := &j.entry.Measurements[i]
			if m.Device == r.dev.Kind && len(r.options.Ranges.List(j.entry, m.Device, m.Share, m.Batch)) > 0 {
				out = append(out, measurementKey{m.Share, m.Batch})
			}
		}
		return out
	}
	batches := r.options.Batches
	if j.info.batch > 0 {
		batches = []int{j.info.batch}
	}
	for _, share := range r.options.Shares {
		for _, batch := range batches {
			out = append(out, measurementKey{share, batch})
		}
	}
	return out
}

// knowsCeilings reports whether the profile has the highest rates of the GPU (its ceilings), so that they need not
// be measured, which takes seconds. Those of a CPU are always measured anew, because others may be using it.
func (r *runner) knowsCeilings() bool {
	current := provenance(r.dev, r.options.Engine.Info(), r.options, r.begun)
	return !r.dev.IsCPU() && !r.options.Force && slices.ContainsFunc(r.profile.Devices, func(d formats.ProfileDevice) bool {
		return d.Device == r.dev.Kind && d.MemoryGBps > 0 && d.MatmulGflops > 0 && sameProvenance(d, current)
	})
}

// target returns where and how models are loaded on the whole device.
func (r *runner) target() loadTarget {
	return loadTarget{r.options.Engine, r.dev, r.options.EngineOptions, r.options.FP16}
}

// batches returns the batch sizes that are to be measured at a share, ascending.
func (j *modelJob) batches(share int) []int {
	var out []int
	for _, key := range j.todo {
		if key.share == share {
			out = append(out, key.batch)
		}
	}
	return out
}
