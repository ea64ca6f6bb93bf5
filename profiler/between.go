package profiler

import (
	"context"
	"fmt"
	"math"

	"inferplan/formats"
)

// Repeat measures as Run does, and then runs-1 times more with the same cuts, whatever the profile holds. The
// profile keeps the numbers of the first run, and its device gets the spread between the runs. Every run may take
// the whole budget. If the context ends, the spread is that of the runs that were complete.
func Repeat(ctx context.Context, o Options, runs int) (*formats.Profile, error) {
	first, err := Run(ctx, o)
	if err != nil || runs < 2 {
		return first, err
	}
	profiles := []*formats.Profile{first}
	// Measure again, with the first run's cuts, without a file and without ranges of blocks in one piece.
	for len(profiles) < runs {
		repeatOptions := o
		repeatOptions.OutPath, repeatOptions.Profile, repeatOptions.Force, repeatOptions.Ranges = "", cutsOf(first), false, Ranges{}
		p, err := Run(ctx, repeatOptions)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return first, fmt.Errorf("run %d of %d: %w", len(profiles)+1, runs, err)
		}
		profiles = append(profiles, p)
	}

	// Put the spread between the runs into the profile.
	setSpread := func(p *formats.Profile) error {
		for i := range p.Devices {
			if d := &p.Devices[i]; len(profiles) > 1 {
				if spread, ok := spreadOf(profiles, d.Device); ok {
					d.BetweenRuns = &formats.BetweenRuns{Runs: len(profiles), Spread: spread}
				}
			}
		}
		return nil
	}
	if o.OutPath == "" {
		return first, setSpread(first)
	}
	return Update(o.OutPath, first, setSpread)
}

// cutsOf returns a copy of the profile that has the models with their blocks, and no measurements. A further run then
// cuts the models alike. Models keep their order.
func cutsOf(p *formats.Profile) *formats.Profile {
	out := &formats.Profile{Format: p.Format, Devices: []formats.ProfileDevice{}}
	for _, m := range p.Models {
		m.Measurements = nil
		out.Models = append(out.Models, m)
	}
	return out
}

// spreadOf returns the relative standard deviation of a model's time from run to run on a kind of device, over all
// that every run has measured, rounded to four decimals: 0.02 means that runs differ by 2 %. It uses logarithms of
// times, so that small and large models count the same. If there is nothing to compare, ok is false.
func spreadOf(runs []*formats.Profile, device string) (spread float64, ok bool) {
	squares, degreesOfFreedom := 0.0, 0
	for i := range runs[0].Models {
		for _, m := range runs[0].Models[i].Measurements {
			if m.Device != device {
				continue
			}

			// Collect the logarithms of the time in all runs, and add their squared distances from the mean.
			logs, mean := make([]float64, 0, len(runs)), 0.0
			for _, run := range runs {
				if t := timeOf(run, runs[0].Models[i].Model, &m); t > 0 {
					logs = append(logs, math.Log(t))
					mean += math.Log(t)
				}
			}
			if len(logs) < len(runs) { // a run has not measured it
				continue
			}
			mean /= float64(len(logs))
			for _, l := range logs {
				squares += (l - mean) * (l - mean)
			}
			degreesOfFreedom += len(logs) - 1
		}
	}
	if degreesOfFreedom == 0 {
		return 0, false
	}
	return math.Round(1e4*math.Sqrt(squares/float64(degreesOfFreedom))) / 1e4, true
}

// timeOf returns the time, in microseconds, that a run measured for a model at the device, share and batch of m, a
// measurement of another run: that of the whole model, or the sum over its blocks. It returns 0 if the run did not
// measure it. (Share v stands for 1/v of the device.)
func timeOf(run *formats.Profile, model string, m *formats.Measurement) float64 {
	for i := range run.Models {
		if run.Models[i].Model != model {
			continue
		}
		for _, x := range run.Models[i].Measurements {
			if x.Device != m.Device || x.Share != m.Share || x.Batch != m.Batch {
				continue
			}
			if x.WholeModel != nil {
				return float64(x.WholeModel.WallUS)
			}
			sum := 0.0
			for _, l := range x.Blocks {
				sum += float64(l.WallUS)
			}
			return sum
		}
	}
	return 0
}
