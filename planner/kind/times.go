package kind

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// minDisturbance is the share by which runs take longer on average than undisturbed from which on
// the plan says what that costs.
const minDisturbance = .05

// noteRateTimes sets RatesBy of a finished plan if its rates are computed with mean times, and adds assumptions and
// warnings to the run: about stages for which the profile has one time of a run and no mean; about batch sizes that
// were not measured; and about stages whose mean time is well above the undisturbed one (the median) because other
// work ran beside the profile. Means contain the time that a batch occupies its device besides its run (dispatch_us of
// the profile); medians do not.
func (r *SolveRun) noteRateTimes(plan *formats.Plan, profile *formats.Profile) {
	dispatchTimes := map[string]document.Micros{} // by model
	for i := range profile.Models {
		dispatchTimes[profile.Models[i].Model] = profile.Models[i].DispatchUS
	}
	var withMeans, withoutMeans, interpolated, disturbedRuns []string
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}

	// Sort the stages by the times that they have: InferUS holds the undisturbed times and MeanUS the means, in
	// microseconds by batch size from 1, and InferRangeUS the interval of each time.
	maxExcess := 0.0
	for s := range plan.Stages() {
		name := s.Deployed.Model + " on " + s.Device
		if sizes := unmeasuredSizes(s.InferRangeUS); len(sizes) > 0 {
			add(&interpolated, strings.Join(sizes, ", ")+" of "+name)
		}
		if n := s.Pipeline.Batch; len(s.MeanUS) < n {
			add(&withoutMeans, name)
			continue
		} else if excess := float64(s.MeanUS[n-1])/float64(s.InferUS[n-1]+dispatchTimes[s.Deployed.Model]) - 1; excess > minDisturbance {
			add(&disturbedRuns, fmt.Sprintf("%s by %.0f %%", name, 100*excess))
			maxExcess = max(maxExcess, excess)
		}
		add(&withMeans, name)
	}

	// Note what that means for the rates.
	if len(withMeans) > 0 {
		plan.RatesBy = formats.RatesByMean
	}
	switch {
	case len(withoutMeans) > 0 && len(withMeans) == 0:
		r.Assume("rates are computed with the one time of a run that the profile has: it has no means")
	case len(withoutMeans) > 0:
		r.Assume("rates of %s are computed with the one time of a run that the profile has: it has no means there", strings.Join(withoutMeans, ", "))
	}
	if len(interpolated) > 0 {
		r.Assume("times of batches that were not measured are on the line between those that were (estimated): %s; plan profile --batches measures them", strings.Join(interpolated, "; "))
	}
	if len(disturbedRuns) > 0 {
		r.Warn("other work disturbed the profile: the mean time of a run is above the median (%s). Rates count on the mean; an undisturbed machine would carry up to %.0f %% more", strings.Join(disturbedRuns, ", "), 100*maxExcess)
	}
}

// unmeasuredSizes returns as texts the batch sizes that were not measured: those whose time is an interval, from the
// time of the measured size below to that of the one above. Consecutive sizes are written as first-last.
// intervals[i] has the least and the largest time of batch size i+1 in microseconds, equal if it was measured.
func unmeasuredSizes(intervals [][2]document.Micros) []string {
	var sizes []string
	for first := 0; first < len(intervals); first++ {
		last := first
		for last < len(intervals) && intervals[last][0] < intervals[last][1] {
			last++
		}
		switch last - first {
		case 0:
			continue
		case 1:
			sizes = append(sizes, fmt.Sprint(first+1))
		default:
			sizes = append(sizes, fmt.Sprintf("%d-%d", first+1, last))
		}
		first = last // index of the measured size that ended the interval
	}
	return sizes
}
