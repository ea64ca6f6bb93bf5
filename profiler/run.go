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
	dev, err := selectDevice(o.Engine, o.Device)
	if err != nil {
		return nil, err
	}
	if o.DeviceName != "" {
		dev.Kind = o.DeviceName
	}
	if o.RealTime && !countsCPU(dev) {
		return nil, inputError("real-time priority on %s: it is for CPUs of one thread", dev.Kind)
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
	// Look at the file before reading it, so that a write in between is noticed.
	var written fs.FileInfo
	if o.Out != "" {
		written, _ = os.Stat(o.Out)
	}
	prof, err := existing(&o)
	if err != nil {
		return nil, err
	}
	o.Profile = prof
	r := &runner{o: &o, dev: dev, profile: prof, begun: o.now(), written: written, progress: progress{report: o.Progress}}
	return prof, r.run(ctx)
}

// profileToExtend returns the profile that the run extends: that of the options, that of the file, or an empty
// one.
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
		// Check now, not after ten minutes of measuring, that the file can be written.
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

// measurementKey identifies a Measurement of a model on the run's device.
type unit struct{ share, batch int }

// modelJob is the work of a run on one model.
type job struct {
	m      model
	in     modelInfo
	entry  *formats.ProfileModel // the model's entry, in the profile already or added later
	prior  bool                  // the blocks are cut as in the profile
	added  bool                  // this run added the model to the profile
	before []formats.Measurement // measurements of the model in the profile when the run began
	// isRecorded says that this run has measured the model.
	recorded bool
	todo     []unit
	base     map[unit]bool // by key of todo, whether blocks and the uncut model are measured, and not only ranges
	whole    time.Duration // the time of a quick run at batch 1
	load     time.Duration // the time to load the uncut model
	expect   time.Duration // the expected time of the complete job, on a quiet machine

	cut    blocks
	chains map[int][]*chain // the loaded copies of the model, by share
	memory map[unit]int64
}

// runner is the state of one call of Run.
type runner struct {
	o       *Options
	dev     engine.Device
	profile *formats.Profile
	jobs    []*job
	refused refusals
	begun   time.Time
	counted time.Duration // part of the time since begun that is in CostSeconds already
	shared  string        // the method by which shares were made
	copy    float64
	ceilings
	watch *stateWatch
	busy  float64       // largest disturbance of a probe set
	notes []subjectNote // notes of this run
	// lastWrite is the state of the file when this run read or wrote it last.
	written fs.FileInfo
	progress
}

func (r *runner) run(ctx context.Context) error {
	if r.dev.IsCPU() {
		unpin, err := engine.PinThread(r.dev.CPUs...)
		if err != nil {
			return err
		}
		defer unpin()
		undo, err := goFirst(r.o.RealTime)
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

	// Estimate the time, and let the caller decide whether to go on.
	est, err := r.estimate(ctx, todo)
	if err != nil {
		return err
	}
	if len(r.jobs) == 0 {
		return r.refused.noModel()
	}
	todo = slices.DeleteFunc(todo, func(j *job) bool { return !slices.Contains(r.jobs, j) })
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

	// Measure group by group, and save the profile after each.
	groups := r.groups(todo)
	for i, members := range groups {
		if err := r.newGroup(members, r.deadline(groups[i:])).measure(ctx); err != nil {
			return err
		}
		for _, j := range members {
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

// openModels reads every model before anything is measured, so that a bad file is found at once.
func (r *runner) open(ctx context.Context) error {
	names := map[string]*job{}

	// Open every model at each of its sizes. Names must be unique.
	for _, path := range r.o.Models {
		r.event(Event{Stage: StageOpen, Model: path})
		sizes, err := variants(ctx, r, path)
		if err != nil {
			if err := r.refused.refuse(r, err); err != nil {
				return err
			}
			continue
		}
		for _, v := range sizes {
			if have, ok := names[v.in.name]; ok {
				if have.in.sha256 == v.in.sha256 {
					continue // the same file, named twice
				}
				return inputError("two models are called %s: %s and %s: rename one file", v.in.name, have.in.path, v.in.path)
			}
			for _, w := range v.in.warnings {
				r.warn(v.in.name, w)
			}
			j := &job{m: v.m, in: v.in, base: map[unit]bool{}, chains: map[int][]*chain{}, memory: map[unit]int64{}}
			names[v.in.name] = j
			r.jobs = append(r.jobs, j)
		}
	}

	// Check the options' names against the models, and take over what the profile has.
	if len(r.jobs) == 0 {
		return r.refused.noModel()
	}
	if err := allUsed(r); err != nil {
		return err
	}
	if err := r.adopt(); err != nil {
		return err
	}
	return padding(ctx, r)
}

// planMeasurements decides what is measured. It returns how many of the requested measurements the profile has
// already.
func (r *runner) plan() (skipped int) {
	for _, j := range r.jobs {
		for _, u := range r.units(j) {
			held := j.prior && j.entry.At(r.dev.Kind, u.share, u.batch) != nil
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

// requestedKeys returns the measurements that are requested of a model: those of the options or, if only ranges
// are requested, those that the profile has.
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

// knowsCeilings reports whether the profile has the highest rates of the GPU, which take seconds to measure. Those
// of a CPU are always measured anew, because others may be using it.
func (r *runner) knowsCeilings() bool {
	now := provenance(r.dev, r.o.Engine.Info(), r.o, r.begun)
	return !r.dev.IsCPU() && !r.o.Force && slices.ContainsFunc(r.profile.Devices, func(d formats.ProfileDevice) bool {
		return d.Device == r.dev.Kind && d.MemoryGBps > 0 && d.MatmulGflops > 0 && sameProvenance(d, now)
	})
}

func (r *runner) here() place { return place{r.o.Engine, r.dev, r.o.EngineOptions, r.o.Half} }

// batches returns the batch sizes that are to be measured at a share, ascending.
func (j *job) batches(share int) []int {
	var out []int
	for _, u := range j.todo {
		if u.share == share {
			out = append(out, u.batch)
		}
	}
	return out
}
