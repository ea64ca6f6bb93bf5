package planner

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/pool"
	"inferplan/planner/stages"
)

// Version is the version of this tool, as plans state it.
var Version = "0.1.0"

// Inputs are the documents that a plan is made from.
type Inputs struct {
	Profile  *formats.Profile
	Cluster  *formats.Cluster
	Workload *formats.Workload
	// Running is a plan that runs: what changes is to stay within
	// Options.MaxMoved. Nil: nothing runs.
	Running *formats.Plan
	// Files name the documents in error messages and go into the plan; a
	// document that was assumed has none.
	Files []formats.Input
	// ProfileDir is the folder of the profile, to find the model files that it
	// names; empty: model files are not looked at.
	ProfileDir string
	// WorkloadDir is the folder of the workload, against which the path of its
	// measured rates is read.
	WorkloadDir string
}

// Methods, algorithms and objectives.
const (
	MethodAuto = "auto"
	MethodPool = "pool"

	AlgorithmTemplate = "template"
	AlgorithmNP       = "np"
	AlgorithmDARTr    = "dart-r"

	ObjectiveThroughput = "throughput"
	ObjectiveCost       = "cost"  // least USD per hour of the devices used
	ObjectivePower      = "power" // least watts
	ObjectiveGPUs       = "gpus"  // fewest devices

	RoundingSlot       = "slot"
	RoundingFractional = "fractional"

	CutsAuto = stages.CutsAuto
	CutsFP32 = stages.CutsFP32

	BlocksByTime  = "time"  // the slowest block as fast as can be
	BlocksByBytes = "bytes" // cuts that few bytes cross
)

// Options are the choices of a solve. Start from DefaultOptions.
type Options struct {
	Method        string
	Algorithm     string
	Objective     string
	Margin        float64 // share of the SLO kept back, 0 <= m < 1
	GPURounding   string
	MaxPartitions int
	MaxBatch      int     // 0: the largest measured
	Blocks        int     // at most so many per model to cut between; 0: those of the profile
	BlocksBy      string  // how they are chosen: time or bytes
	BatchBuild    float64 // factor of the delay for filling a batch; 0: none
	MinLoad       float64 // least rps / weight of every model
	Gap           float64 // relative gap at which to stop
	Effort        int     // 1..: each step doubles the work limits
	TimeLimit     time.Duration
	Seed          uint64
	SLO           formats.SLO // of every model, over the workload's
	CutDType      string
	UnevenNIC     bool    // devices of a node may leave its NIC to others: see pool.SolveUneven
	MaxMoved      float64 // share of the devices that may load something new, where a plan runs
	// Assumptions are what the caller assumed before; they go into the plan first.
	Assumptions []string
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{
		Method: MethodAuto, Algorithm: AlgorithmTemplate, Objective: ObjectiveThroughput,
		Margin: 0.4, GPURounding: RoundingSlot, MaxPartitions: 2, Gap: 1e-2, Effort: 1, Seed: 1, CutDType: CutsAuto,
		BlocksBy: BlocksByBytes, MaxMoved: pool.MaxMovedDefault,
	}
}

// optionsError is an option that cannot be.
func optionsError(name, found, expected string) error {
	return &formats.Error{Path: "--" + name, Found: found, Expected: expected}
}

// later are values that other versions have and this one has not.
var later = map[string][]string{
	"method":    {"queue", "flow"},
	"algorithm": {"a2"},
}

func oneOf(name, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	e := &formats.Error{Path: "--" + name, Found: fmt.Sprintf("%q", value), Expected: strings.Join(allowed, " or ")}
	if near := formats.Nearest(value, allowed); near != "" {
		e.Hint = "did you mean " + near + "?"
	}
	if slices.Contains(later[name], value) {
		e.Hint = value + " is not available in this version"
	}
	return e
}

// complete fills what was left empty and checks the rest.
func (o *Options) complete() error {
	d := DefaultOptions()
	for _, f := range []struct{ value, def *string }{
		{&o.Method, &d.Method}, {&o.Algorithm, &d.Algorithm}, {&o.Objective, &d.Objective},
		{&o.GPURounding, &d.GPURounding}, {&o.BlocksBy, &d.BlocksBy}, {&o.CutDType, &d.CutDType},
	} {
		if *f.value == "" {
			*f.value = *f.def
		}
	}
	if o.MaxPartitions == 0 {
		o.MaxPartitions = d.MaxPartitions
	}
	if o.Effort == 0 {
		o.Effort = d.Effort
	}
	for _, err := range []error{
		oneOf("method", o.Method, MethodAuto, MethodPool, MethodGear),
		oneOf("algorithm", o.Algorithm, AlgorithmTemplate, AlgorithmNP, AlgorithmDARTr),
		oneOf("objective", o.Objective, ObjectiveThroughput, ObjectiveCost, ObjectivePower, ObjectiveGPUs),
		oneOf("gpu-rounding", o.GPURounding, RoundingSlot, RoundingFractional),
		oneOf("blocks-by", o.BlocksBy, BlocksByTime, BlocksByBytes),
		oneOf("cut-dtype", o.CutDType, CutsAuto, CutsFP32),
	} {
		if err != nil {
			return err
		}
	}
	bad := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }
	switch {
	case bad(o.Margin) || o.Margin >= 1:
		return optionsError("margin", fmt.Sprint(o.Margin), "a share of the SLO, from 0 to less than 1")
	case bad(o.Gap) || o.Gap >= 1:
		return optionsError("gap", fmt.Sprint(o.Gap), "a relative gap, from 0 to less than 1")
	case o.Blocks < 0:
		return optionsError("blocks", fmt.Sprint(o.Blocks), "at least 1, or 0 for those of the profile")
	case bad(o.MaxMoved) || o.MaxMoved > 1:
		return optionsError("max-moved", fmt.Sprint(o.MaxMoved), "a share of the devices, from 0 to 1")
	case bad(o.BatchBuild):
		return optionsError("batch-build", fmt.Sprint(o.BatchBuild), "a factor of at least 0")
	case bad(o.MinLoad):
		return optionsError("min-load", fmt.Sprint(o.MinLoad), "a rate of at least 0")
	case o.Objective != ObjectiveThroughput && o.Algorithm != AlgorithmTemplate:
		return optionsError("objective", o.Objective, "throughput with --algorithm "+o.Algorithm)
	case o.MaxPartitions < 1 || o.MaxPartitions > 8:
		return optionsError("max-partitions", fmt.Sprint(o.MaxPartitions), "1 to 8")
	case o.MaxBatch < 0:
		return optionsError("max-batch", fmt.Sprint(o.MaxBatch), "at least 1, or 0 for the largest measured")
	case o.Effort < 1 || o.Effort > 16:
		return optionsError("effort", fmt.Sprint(o.Effort), "1 to 16")
	case o.TimeLimit < 0:
		return optionsError("time-limit", o.TimeLimit.String(), "at least 0")
	}
	return nil
}

func (o *Options) pool() pool.Options {
	return pool.Options{Gap: o.Gap, Effort: 1 << (o.Effort - 1), Seed: int32(o.Seed % math.MaxInt32)}
}

func (o *Options) rounding() pool.Rounding {
	if o.GPURounding == RoundingFractional {
		return pool.Fractional
	}
	return pool.Slot
}

// plan is what a plan keeps of the options.
func (o *Options) plan() formats.PlanOptions {
	dtype := o.CutDType
	if dtype == CutsAuto {
		dtype = ""
	}
	by := ""
	if o.Blocks > 0 {
		by = o.BlocksBy
	}
	return formats.PlanOptions{
		Blocks: o.Blocks, BlocksBy: by,
		SLO: o.SLO.String(), CutDType: dtype, Margin: o.Margin, GPURounding: o.GPURounding, MaxPartitions: o.MaxPartitions, MaxBatch: o.MaxBatch,
		BatchBuild: o.BatchBuild, MinLoadRPS: o.MinLoad, GapTarget: o.Gap, Effort: o.Effort,
	}
}

// OptionsOf are the options that a plan was made with.
func OptionsOf(p *formats.Plan) Options {
	o := DefaultOptions()
	o.Algorithm, o.Objective = p.Algorithm, p.Objective.Name
	o.Margin, o.GPURounding, o.MaxPartitions, o.MaxBatch = p.Options.Margin, p.Options.GPURounding, p.Options.MaxPartitions, p.Options.MaxBatch
	o.BatchBuild, o.MinLoad, o.Gap, o.Effort = p.Options.BatchBuild, p.Options.MinLoadRPS, p.Options.GapTarget, p.Options.Effort
	o.Seed, o.Blocks = p.Seed, p.Options.Blocks
	if p.Options.BlocksBy != "" {
		o.BlocksBy = p.Options.BlocksBy
	}
	if p.Options.CutDType != "" {
		o.CutDType = p.Options.CutDType
	}
	if slo, err := formats.ParseSLO(p.Options.SLO); err == nil {
		o.SLO = slo
	}
	return o
}
