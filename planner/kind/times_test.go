package kind

import (
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
)

// A model's dispatch time, which is a part of its means, is no sign that other work disturbed its profile. A mean that is
// longer than the median and the dispatch time is.
func TestDisturbedProfilesAreNamed(t *testing.T) {
	const medianUS, dispatchUS = 4, 100
	for _, test := range []struct {
		meanUS      document.Micros
		isDisturbed bool
	}{
		{meanUS: medianUS + dispatchUS},
		{meanUS: medianUS + dispatchUS + 4},
		{meanUS: 156, isDisturbed: true},
	} {
		stage := formats.Stage{InferUS: []document.Micros{medianUS}, MeanUS: []document.Micros{test.meanUS}}
		plan := &formats.Plan{Deployment: []formats.Deployed{{Model: "m", Pipelines: []formats.Pipeline{{Batch: 1, Stages: []formats.Stage{stage}}}}}}
		run := NewRun(nil)
		run.noteRateTimes(plan, &formats.Profile{Models: []formats.ProfileModel{{Model: "m", DispatchUS: dispatchUS}}})
		if found := strings.Contains(strings.Join(run.Warnings, "\n"), "disturbed the profile: the mean time of a run is above the median (m on  by 50 %)"); found != test.isDisturbed {
			t.Errorf("mean %v us: warnings %q, want one: %v", test.meanUS, run.Warnings, test.isDisturbed)
		}
	}
}
