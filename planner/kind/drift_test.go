package kind

import (
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Rates leave room for two standard deviations of the stretches of a kind of devices, all its
// models together; the kind in the cluster that changes most counts, up to a fifth.
func TestDriftTakesTheMostVariableKind(t *testing.T) {
	measured := func(device string, mean, drift document.Micros) formats.ProfileModel {
		return formats.ProfileModel{Measurements: []formats.Measurement{{Device: device, Batch: 1, WholeModel: &formats.Latency{MeanUS: mean, DriftUS: drift}}}}
	}
	cluster := &formats.Cluster{Pools: []formats.Pool{{Device: "a"}, {Device: "b"}}}
	for _, c := range []struct {
		name   string
		models []formats.ProfileModel
		share  float64
	}{
		{"a profile that does not say", []formats.ProfileModel{measured("a", 1000, 0)}, 0},
		{"one model", []formats.ProfileModel{measured("a", 1000, 10)}, .02},
		{"two models: the root of the mean square", []formats.ProfileModel{measured("a", 1000, 10), measured("a", 10_000, 70)}, .017},
		{"the kind that changes most", []formats.ProfileModel{measured("a", 1000, 10), measured("b", 1000, 20)}, .04},
		{"a kind that is not in the cluster", []formats.ProfileModel{measured("a", 1000, 10), measured("c", 1000, 40)}, .02},
		{"at most a fifth", []formats.ProfileModel{measured("a", 1000, 300)}, .2},
	} {
		if share := Drift(&formats.Profile{Models: c.models}, cluster); share != c.share {
			t.Errorf("%s: %g, expected %g", c.name, share, c.share)
		}
	}
}
