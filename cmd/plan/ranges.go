package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"inferplan/engine/ort"
	"inferplan/executor/workers"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/profiler"
	"inferplan/profiler/modelinputs"
)

// Values of --ranges of plan profile.
const (
	rangesNone = "none"
	rangesAll  = "all"
	rangesUsed = "used"
)

// measuredRanges returns the ranges of neighbouring blocks that plan profile measures in one piece, by --ranges:
// none, all, or those that the stages of --plan run. For the last, if paths is empty, it sets paths to the files of
// the plan's models; blocks, batches and shares are those of the profile then, and flags of them are refused.
func (o *profileOptions) measuredRanges(typed typedFlags, paths *[]string) (profiler.Ranges, error) {
	switch {
	case o.ranges != rangesNone && o.ranges != rangesAll && o.ranges != rangesUsed:
		return profiler.Ranges{}, usageErrorf("--ranges %q: expected none, all or used", o.ranges)
	case o.ranges != rangesUsed && o.plan != "":
		return profiler.Ranges{}, usageErrorf("--plan says which ranges --ranges used measures: it needs --ranges used")
	case o.ranges == rangesAll:
		return profiler.AllRanges(), nil
	case o.ranges == rangesNone:
		return profiler.Ranges{}, nil
	case o.plan == "":
		return profiler.Ranges{}, usageErrorf("--ranges used: which plan uses them? Add --plan plan.json")
	}
	for _, name := range []string{"blocks", "batches", "shares", "cuts"} {
		if value, ok := typed[name]; ok {
			return profiler.Ranges{}, usageErrorf("--%s %s: found it beside --ranges used, which measures the blocks of a stage at the batches and shares that the profile holds\n  hint: leave it out, or measure more first, without --ranges used", name, strings.Trim(value, "[]"))
		}
	}
	plan, err := readPlan(o.plan)
	if err != nil {
		return profiler.Ranges{}, err
	}
	profile, err := formats.ReadProfile(o.outPath)
	if err != nil {
		return profiler.Ranges{}, withCode(exitUsage, fmt.Errorf("--ranges used adds to a profile that holds the blocks: %w", err))
	}
	if len(*paths) == 0 {
		*paths, err = profiler.PlannedModels(o.outPath, profile, plan)
	}
	return profiler.UsedRanges(plan), err
}

// settlePlan calls solve and, if times of the resulting plan are only estimated, measures them on this machine into
// the profile at profilePath, and solves again, until no time is estimated or the budget is spent. seed is for the
// inputs of the measured models.
func settlePlan(ctx context.Context, p *printer, profilePath string, budget time.Duration, seed uint64, solve func() (*formats.Plan, error)) error {
	// Open the engine and the profile.
	eng, err := ort.Open("")
	if err != nil {
		return fmt.Errorf("opening the engine: %w", err)
	}
	defer eng.Close()
	sharer, err := shareProcesses()
	if err != nil {
		return err
	}
	profile, err := formats.ReadProfile(profilePath)
	if err != nil {
		return withCode(exitUsage, err)
	}
	if sharer.Operators, err = (&modelinputs.Flags{}).RegisterOperators(eng, profile); err != nil {
		return err
	}

	// Solve and measure in turns.
	progress, _, finish := showProgress(p, profilePath)
	defer finish()
	s, err := profiler.Settle(ctx, budget, func(plan *formats.Plan, kind string) profiler.Options {
		x := workers.PlannedExecution(plan, kind)
		device := "auto"
		if formats.IsCPU(kind) {
			device = kind
		}
		p.PrintNote("measuring the estimated stages of the plan on %s", kind)
		return profiler.Options{
			Device: device, Engine: eng, EngineOptions: x.Options, FP16: x.FP16, Watch: watchGPU, Seed: seed, OutPath: profilePath, Progress: progress,
			Sharer: sharer, Operators: sharer.Operators,
		}
	}, solve)
	if err != nil {
		return err
	}
	p.PrintNote("solved %s", document.CountOf(s.Solves, "time"))
	return nil
}
