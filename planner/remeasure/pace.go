package remeasure

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// minRuns is the number of recorded runs from which on their mean counts, and minDifference the part by which it must
// differ from the planned time: profiles of an unchanged model differ by about as much.
const (
	minRuns       = 20
	minDifference = 0.02
)

// BatchPace is the pace of batches of one size.
type BatchPace struct {
	Batch, Runs int
	// Factor is the mean time over the planned one. Where runs after a pause of the device take longer, all from the
	// mean of runs without a pause to that with one is as planned, and the factor is 1.
	Factor float64
}

// Pace is the time of the runs of a model on a share 1/v of a kind of device.
type Pace struct {
	Model, Device string
	Share         int
	Batches       []BatchPace // by batch size, of those with enough runs
	Runs          int         // all recorded runs
}

// sums add up the runs of one size of batch, over all stages of a model on a kind of device.
type sums struct {
	runs               int
	measured           time.Duration
	fastest, afterIdle time.Duration // the planned means without and with pauses
}

// Paces returns the paces of a plan's models from recorded runs, by stage, batch size - 1 and run, as sim.Samples has
// them. t are the tables of the plan. It returns an error if the record is of another plan.
func Paces(plan *formats.Plan, t *policy.Tables, runs [][][]time.Duration) ([]Pace, error) {
	var list []Pace
	var batches [][]sums // by entry of list, then batch size - 1
	stage := 0
	for d := range plan.Deployment {
		for p := range plan.Deployment[d].Pipelines {
			for s := range plan.Deployment[d].Pipelines[p].Stages {
				planned := &plan.Deployment[d].Pipelines[p].Stages[s]
				if stage >= len(t.Stages) || stage < len(runs) && len(runs[stage]) > len(t.Stages[stage].Infer) {
					return nil, otherPlanError(len(runs), stage)
				}
				key := Pace{Model: plan.Deployment[d].Model, Device: planned.Device, Share: max(1, planned.Share)}
				i := slices.IndexFunc(list, func(x Pace) bool { return x.Model == key.Model && x.Device == key.Device && x.Share == key.Share })
				if i < 0 {
					i, list, batches = len(list), append(list, key), append(batches, nil)
				}
				if stage < len(runs) {
					batches[i] = addRuns(batches[i], &t.Stages[stage], runs[stage])
				}
				stage++
			}
		}
	}
	if len(runs) > stage {
		return nil, otherPlanError(len(runs), stage)
	}
	for i := range list {
		list[i].setBatches(batches[i])
	}
	return list, nil
}

// otherPlanError returns the error for a record whose stages are not those of the plan.
func otherPlanError(found, planned int) error {
	return &document.Error{Path: "runs_ns", Found: fmt.Sprintf("times of %d stages", found), Expected: fmt.Sprintf("the %d of the plan, each with its batch sizes", planned), Hint: "the record is of another plan"}
}

// addRuns adds the recorded runs of a stage, by batch size - 1, to the sums of its model.
func addRuns(list []sums, s *policy.Stage, recorded [][]time.Duration) []sums {
	for b, times := range recorded {
		for len(list) <= b {
			list = append(list, sums{})
		}
		mean := s.Infer[b]
		if s.Mean != nil {
			mean = s.Mean[b]
		}
		for _, d := range times {
			list[b].runs++
			list[b].measured, list[b].fastest, list[b].afterIdle = list[b].measured+d, list[b].fastest+mean, list[b].afterIdle+mean+s.IdlePenalty
		}
	}
	return list
}

// setBatches sets the paces of the sizes of batches that have enough runs.
func (p *Pace) setBatches(list []sums) {
	for b, x := range list {
		p.Runs += x.runs
		if x.runs < minRuns || x.fastest <= 0 {
			continue
		}
		factor := 1.0
		if x.measured > x.afterIdle {
			factor = float64(x.measured) / float64(x.afterIdle)
		} else if x.measured < x.fastest {
			factor = float64(x.measured) / float64(x.fastest)
		}
		p.Batches = append(p.Batches, BatchPace{b + 1, x.runs, factor})
	}
}

// Differs reports whether the runs of some batch took another time than planned.
func (p *Pace) Differs() bool {
	return slices.ContainsFunc(p.Batches, func(b BatchPace) bool { return math.Abs(b.Factor-1) > minDifference })
}

// factorAt returns the factor for a size of batch: that of the nearest one with enough runs, and 1 without any.
func (p *Pace) factorAt(batch int) float64 {
	factor, nearest := 1.0, math.Inf(1)
	for _, b := range p.Batches {
		if distance := math.Abs(math.Log(float64(b.Batch) / float64(batch))); distance < nearest {
			factor, nearest = b.Factor, distance
		}
	}
	return factor
}

// String returns what was measured in one line.
func (p *Pace) String() string {
	device := p.Device
	if p.Share > 1 {
		device = fmt.Sprintf("1/%d %s", p.Share, p.Device)
	}
	switch {
	case len(p.Batches) == 0:
		return fmt.Sprintf("%s on %s: as profiled; %d runs, of at least %d in one size of batch", p.Model, device, p.Runs, minRuns)
	case !p.Differs():
		return fmt.Sprintf("%s on %s: runs take as long as profiled, within %g %%", p.Model, device, 100*minDifference)
	}
	var parts []string
	for _, b := range p.Batches {
		parts = append(parts, fmt.Sprintf("%.2f times at batch %d (%d runs)", b.Factor, b.Batch, b.Runs))
	}
	return fmt.Sprintf("%s on %s: runs take, of the profiled time, %s", p.Model, device, strings.Join(parts, ", "))
}

// WithPaces returns the profile with the times that the paces say. A size of batch that was not served has the factor of
// the nearest one that was. It returns nil if no pace differs from the planned one.
func WithPaces(profile *formats.Profile, paces []Pace) *formats.Profile {
	if !slices.ContainsFunc(paces, func(p Pace) bool { return p.Differs() && profile.FindModel(p.Model) != nil }) {
		return nil
	}
	return profile.WithTimes(func(model int, m *formats.Measurement) func(*formats.Latency) {
		i := slices.IndexFunc(paces, func(p Pace) bool {
			return p.Model == profile.Models[model].Model && p.Device == m.Device && p.Share == m.Share
		})
		if i < 0 || !paces[i].Differs() {
			return nil
		}
		factor := paces[i].factorAt(m.Batch)
		return func(l *formats.Latency) { *l = l.Scaled(factor, factor) }
	})
}
