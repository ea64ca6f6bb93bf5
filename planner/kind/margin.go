package kind

import (
	"math"
	"sort"
	"time"
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
