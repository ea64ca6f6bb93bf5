package profiler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
)

// PlannedModels returns the files of the models that a plan runs, each once, by the paths in the profile. Those are
// relative to the profile's folder. A model without a file, whose numbers come from elsewhere, is an error.
func PlannedModels(profilePath string, profile *formats.Profile, plan *formats.Plan) ([]string, error) {
	var out []string
	for i := range plan.Deployment {
		name := plan.Deployment[i].Model
		index := slices.IndexFunc(profile.Models, func(m formats.ProfileModel) bool { return m.Model == name })
		if index < 0 {
			return nil, inputError("%s: the plan runs %s, which is not in it", profilePath, name)
		}
		src := profile.Models[index].Source
		if src == nil || src.Path == "" {
			return nil, inputError("%s does not say where the file of %s is: it was not measured here", profilePath, name)
		}
		path := filepath.FromSlash(src.Path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(profilePath), path)
		}
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out, nil
}

// SettleResult is the result of Settle.
type SettleResult struct {
	Plan   *formats.Plan
	Solves int
	Ranges int // number of measurements with new ranges
	// EstimatedKinds are the kinds of devices whose stages still have estimated times, because this machine has no
	// such device or the budget is spent.
	EstimatedKinds []string
}

// Settle makes a plan whose times are all measured. It solves, measures in one piece the ranges of blocks that the
// plan's stages run and whose times were estimated from the single blocks, and solves again, until no time of the
// plan is estimated. It measures on the devices of this machine, within a budget of time. optionsFor returns the
// options with which a kind of device is measured; their OutPath names the profile that solve reads. It ends early
// when the budget is spent; the result then still names the kinds with estimated times.
func Settle(ctx context.Context, budget time.Duration, optionsFor func(plan *formats.Plan, kind string) Options, solve func() (*formats.Plan, error)) (SettleResult, error) {
	var s SettleResult
	begun := time.Now()
	for {
		plan, err := solve()
		if err != nil {
			return s, err
		}
		s.Plan, s.EstimatedKinds = plan, estimatedOn(plan)
		s.Solves++

		// Measure what the plan estimates, as long as the budget lasts.
		measurementsBefore := s.Ranges
		for _, kind := range s.EstimatedKinds {
			kindOptions := optionsFor(plan, kind)
			if kindOptions.Budget = budget - time.Since(begun); kindOptions.Budget <= 0 {
				return s, nil
			}
			n, err := measureUsed(ctx, kindOptions, plan)
			if err != nil {
				return s, fmt.Errorf("measuring the stages of the plan on %s: %w", kind, err)
			}
			s.Ranges += n
		}

		// End when nothing new was measured: the plan would not change.
		if s.Ranges == measurementsBefore {
			return s, nil
		}
	}
}

// measureUsed measures the ranges of blocks that the stages of a plan run. It returns the number of measurements
// that got new ranges.
func measureUsed(ctx context.Context, o Options, plan *formats.Plan) (int, error) {
	profile, err := formats.ReadProfile(o.OutPath)
	if err != nil {
		return 0, fmt.Errorf("profile to extend: %w", err)
	}
	if o.Models, err = PlannedModels(o.OutPath, profile, plan); err != nil {
		return 0, err
	}
	o.Ranges = UsedRanges(plan)
	n, report := 0, o.Progress
	o.Progress = func(e Event) {
		if e.Stage == StageMeasured {
			n++
		}
		if report != nil {
			report(e)
		}
	}
	if _, err = Run(ctx, o); errors.Is(err, errNoRange) {
		return 0, nil // the plan's device is not on this machine
	}
	return n, err
}

// estimatedOn returns the kinds of devices on which stages of a plan have estimated times, in the order of the
// plan.
func estimatedOn(plan *formats.Plan) []string {
	var out []string
	for s := range plan.Stages() {
		if s.Estimated && !slices.Contains(out, s.Device) {
			out = append(out, s.Device)
		}
	}
	return out
}
