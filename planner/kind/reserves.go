package kind

import (
	"math"
	"sort"
	"time"

	"inferplan/formats"
)

// Margin returns the time that a plan keeps back of an SLO: share times the SLO, rounded to whole microseconds.
func Margin(slo time.Duration, share float64) time.Duration {
	return time.Duration(math.Round(share*float64(slo)/1000)) * time.Microsecond
}

// MinSLO returns the smallest SLO in whole microseconds, at least one, that leaves the needed time after its
// margin is taken off. share is the margin as a part of the SLO.
func MinSLO(neededTime time.Duration, share float64) time.Duration {
	// The time after the margin never falls from one microsecond to the next, so a binary search finds it. It looks at
	// SLOs below 2^40 microseconds, about twelve days.
	us := sort.Search(1<<40, func(us int) bool {
		slo := time.Duration(us) * time.Microsecond
		return slo-Margin(slo, share) >= neededTime
	})
	return time.Duration(max(us, 1)) * time.Microsecond
}

const (
	// driftQuantile is the .95 quantile of Student's distribution for eight stretches, for one
	// further stretch beside their mean: 1.895 sqrt(1 + 1/8) standard deviations.
	driftQuantile = 2.01
	// maxDrift is the largest drift for which rates leave room. Seven profiles of two slow models on one quiet virtual
	// machine, within ten minutes, had means up to 25 % apart (relative standard deviation .04 to .07).
	maxDrift = .2
)

// Drift returns the share by which runs may take longer at another time than the profile's means, so that rates can
// leave room for it. The profile states, for each whole model on a device kind, the standard deviation of its mean
// time over stretches of the measurement (drift_us). Relative to the means, these are averaged over all models of a
// kind as a root mean square, and extended to the .95 quantile. The kind of the cluster with the largest drift
// counts. The share is at most maxDrift and rounded to a thousandth. If the profile has no drift_us, it is 0.
func Drift(profile *formats.Profile, cluster *formats.Cluster) float64 {
	largest := 0.0
	for k := range cluster.Pools {
		squares, n := 0.0, 0
		for i := range profile.Models {
			for j := range profile.Models[i].Measurements {
				ms := &profile.Models[i].Measurements[j]
				if wholeModel := ms.WholeModel; ms.Device == cluster.Pools[k].Device && wholeModel != nil && wholeModel.DriftUS > 0 && wholeModel.MeanUS > 0 {
					squares += math.Pow(float64(wholeModel.DriftUS)/float64(wholeModel.MeanUS), 2)
					n++
				}
			}
		}
		if n > 0 {
			largest = max(largest, driftQuantile*math.Sqrt(squares/float64(n)))
		}
	}
	return math.Round(min(maxDrift, largest)*1e3) / 1e3
}
