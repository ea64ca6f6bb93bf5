package profiler

import (
	"slices"
	"testing"

	"inferplan/formats"
)

// Whichever model of a run is measured first, the profile lists what it held
// before and then the new models in the order in which they were named.
func TestModelsStandAsNamed(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 1, 3, 0, 2, 3}} {
		r := &runner{profile: &formats.Profile{Models: []formats.ProfileModel{{Model: "older"}, {Model: "c"}}}}
		for _, name := range []string{"d", "b", "c", "a"} { // c was there
			r.jobs = append(r.jobs, &modelJob{entry: &formats.ProfileModel{Model: name}})
		}
		for _, i := range order {
			r.insertModel(r.jobs[i])
		}
		var got []string
		for _, m := range r.profile.Models {
			got = append(got, m.Model)
		}
		if want := []string{"older", "c", "d", "b", "a"}; !slices.Equal(got, want) {
			t.Errorf("measured in the order %v: %v, want %v", order, got, want)
		}
	}
}
