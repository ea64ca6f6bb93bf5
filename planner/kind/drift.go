package kind

import (
	"math"

	"inferplan/formats"
)

const (
	// driftQuantile is Student's .95 quantile for eight stretches, of one stretch more beside their
	// mean: 1.895 sqrt(1 + 1/8) standard deviations.
	driftQuantile = 2.01
	// mostDrift is the largest share that rates leave room for.
	mostDrift = .1
)

// Drift returns the share by which runs may take longer than the means of the profile, on the
// kind of devices of a cluster whose speed changes most. It takes the stretches of all models'
// measurements on a kind together. If the profile has no drift_us there, it returns 0.
func Drift(profile *formats.Profile, cluster *formats.Cluster) float64 {
	largest := 0.0
	for k := range cluster.Pools {
		squares, n := 0.0, 0
		for i := range profile.Models {
			for j := range profile.Models[i].Measurements {
				ms := &profile.Models[i].Measurements[j]
				if w := ms.Whole; ms.Device == cluster.Pools[k].Device && w != nil && w.DriftUS > 0 && w.MeanUS > 0 {
					squares += math.Pow(float64(w.DriftUS)/float64(w.MeanUS), 2)
					n++
				}
			}
		}
		if n > 0 {
			largest = max(largest, driftQuantile*math.Sqrt(squares/float64(n)))
		}
	}
	return math.Round(min(mostDrift, largest)*1e3) / 1e3
}
