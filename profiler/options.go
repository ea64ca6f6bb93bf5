package profiler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
	"inferplan/formats/modelfile"
)

// ErrInput is wrapped by every error that the caller's request caused, as opposed to a failure of the machine.
var ErrInput = errors.New("profile")

// Options are the options of Run. Zero values mean the defaults named beside them.
type Options struct {
	Models []string // ONNX files; see FindModels
	// Device is "auto" (default: cuda:0 where there is one, else cpu), "cpu"
	// (one pinned thread), "cpu-<n>" (n pinned threads), or an ID of
	// Engine.Devices such as "cuda:0" or "cpu:1".
	Device     string
	DeviceName string // replaces the device kind's name in the profile

	Shares  []int  // v of 1/v; default 1. More than 1 needs a GPU and a Sharer
	Batches []int  // default 1, 2, 4, 8
	Blocks  int    // default 10; fewer where a model has fewer cuts
	Ranges  Ranges // default none

	// Budget bounds the time for everything together. 0 means no bound. The time is split evenly in rounds, so
	// that every block at every batch gets as many samples as the others.
	Budget    time.Duration
	Precision Precision // default DefaultPrecision

	Engine        engine.Engine  // required
	EngineOptions engine.Options // options of every Load
	Sharer        DeviceSharer   // makes the processes for shares above 1

	// FP16 lets whole models compute in float16 (weights, and all that is float32 between the model's own inputs
	// and outputs). The effect on their answers is checked on FP16Samples inputs, against the same device in
	// float32.
	FP16 bool

	// Watch, if given, opens a reader of a GPU's power and clocks.
	Watch func(d engine.Device) (StateReader, error)

	// Seed gives random weights to models that come without (see graph.Options). Dims fixes free dimensions of
	// inputs, by model name ("" for all models) and input name. Values, by the same names, are the values of
	// inputs without dimensions, and those that the other inputs are measured with. Dimensions and values that are
	// not given are taken from the profile.
	Seed   uint64
	Dims   map[string]map[string][]int64
	Values map[string]map[string]graph.Literal

	// Buckets are the sizes at which a model is measured, by model name as in Dims: the dimensions of its inputs
	// at each size. Each size becomes a model of the profile.
	Buckets map[string][]map[string][]int64

	// Operators are the libraries of custom operators that the engine has.
	Operators []modelfile.OperatorLibrary

	// RealTime gives the measuring thread priority over all other threads, so that other work cannot interrupt the
	// samples. It is for CPUs of one thread only.
	RealTime bool

	// CutsFrom, if given, is a profile whose cuts are used for models that the profile to extend does not have.
	// The two profiles can then be compared block by block.
	CutsFrom *formats.Profile

	FP16Samples int // inputs per check of float16; default 8, fewer where the budget is small, negative for none

	// OutPath is the profile's file. Its contents are kept and extended, and it is written (by renaming) after
	// every finished measurement. If empty, no file is read or written.
	OutPath string
	// Profile, if given, is used instead of the contents of OutPath.
	Profile *formats.Profile
	Force   bool // measure again what the profile has

	OnEstimate func(Estimate) error // called before the long work; if it returns an error, Run ends with it
	Progress   func(Event)

	basedOn  *formats.ProfileModel // sizes and values are those of this model; if nil, of the profile's model of the same name
	now      func() time.Time
	open     openFunc
	hostCopy func() float64
	ceilings func(ctx context.Context, p loadTarget) ceilings
	// turn is called before every round of samples, and the function that it returns after the round. Two
	// concurrent runs alternate by it.
	turn func() (done func())
	// letIdle leaves the device without work for a while.
	letIdle func()
	// measureReference does the reference work and returns its CPU time.
	measureReference func() time.Duration
}

// DefaultBatches are the batch sizes that Run measures if none are given.
var DefaultBatches = []int{1, 2, 4, 8}

// DefaultBlocks is the number of blocks that a model is cut into.
const DefaultBlocks = 10

// Event reports what Run is doing. DoneShare rises from 0 to 1 over the whole run.
type Event struct {
	Stage     Stage
	Model     string
	Share     int
	Batch     int
	Text      string
	DoneShare float64
}

// Stage is the kind of an Event.
type Stage string

// The stages of a run. Sampling is reported once a round. StageWarning and StageSkipped have a text for the user.
const (
	StageOpen     Stage = "open"
	StageCut      Stage = "cut"
	StageLoad     Stage = "load"
	StageFP16     Stage = "fp16"
	StageWarmUp   Stage = "warm-up"
	StageSample   Stage = "sample"
	StageMeasured Stage = "measured"
	StageSkipped  Stage = "skipped"
	StageWarning  Stage = "warning"
)

// Estimate is the expected cost of a run.
type Estimate struct {
	Device              string // kind
	Name                string // the name of the hardware
	Models              []ModelEstimate
	SkippedMeasurements int // measurements that the profile holds already

	// ExpectedTime is for a quiet machine. MaxTime is for numbers that all need the largest number of samples.
	// Budget bounds both.
	ExpectedTime, MaxTime time.Duration
	Budget                time.Duration
}

// ModelEstimate is one model's part of an Estimate.
type ModelEstimate struct {
	Model        string
	WholeTime    time.Duration // one quick run at batch 1 (or the model's own batch)
	Measurements int           // (share, batch) pairs to be measured
	Blocks       int
	ExpectedTime time.Duration
}

// inputError returns an error that the caller's request caused, which wraps ErrInput.
func inputError(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrInput, fmt.Sprintf(format, a...))
}

// normalize fills in the defaults, sorts the lists, and returns an error if an option is impossible. Run calls it
// before anything else, so errors come before any measuring.
func (o *Options) normalize() error {
	if o.Engine == nil {
		return errors.New("profiler: Options.Engine is not set")
	}
	if len(o.Models) == 0 {
		return inputError("no model given")
	}

	// Fill in the defaults.
	o.Device = cmp.Or(o.Device, "auto")
	if len(o.Shares) == 0 {
		o.Shares = []int{1}
	}
	if len(o.Batches) == 0 {
		o.Batches = DefaultBatches
	}

	// Sort and check the lists.
	for _, s := range []struct {
		name     string
		list     *[]int
		maxValue int
	}{{"shares", &o.Shares, 64}, {"batches", &o.Batches, 1 << 16}} {
		*s.list = slices.Compact(slices.Sorted(slices.Values(*s.list)))
		if lo, hi := (*s.list)[0], (*s.list)[len(*s.list)-1]; lo < 1 || hi > s.maxValue {
			return inputError("%s: %v: expected whole numbers from 1 to %d", s.name, *s.list, s.maxValue)
		}
	}
	switch {
	case o.Blocks == 0:
		o.Blocks = DefaultBlocks
	case o.Blocks < 0:
		return inputError("blocks: %d: expected at least 1", o.Blocks)
	}
	if o.Budget < 0 {
		return inputError("budget: %v: expected a positive time such as 5m", o.Budget)
	}
	if o.Precision == (Precision{}) {
		o.Precision = DefaultPrecision
	}
	if o.Precision.MinRounds < 1 || o.Precision.MaxRounds < o.Precision.MinRounds || o.Precision.HalfWidth <= 0 {
		return inputError("precision: %+v: expected 1 <= MinRounds <= MaxRounds and HalfWidth > 0", o.Precision)
	}
	o.FP16Samples = cmp.Or(o.FP16Samples, 8)

	// Tests replace these functions.
	if o.now == nil {
		o.now = time.Now
	}
	if o.measureReference == nil {
		o.measureReference = newReference().measure
	}
	if o.letIdle == nil {
		o.letIdle = func() { time.Sleep(formats.IdleGap) }
	}
	if o.open == nil {
		o.open = openONNX
	}
	if o.turn == nil {
		o.turn = func() func() { return func() {} }
	}
	if o.hostCopy == nil {
		o.hostCopy = sync.OnceValue(hostCopyGbps)
	}
	if o.ceilings == nil {
		copyGbps := o.hostCopy
		o.ceilings = func(ctx context.Context, p loadTarget) ceilings { return measureCeilings(ctx, p, copyGbps) }
	}
	return nil
}
