package kind

import (
	"math"
	"sort"
	"time"
)

// Margin is the part of an SLO that plans leave unused, in whole microseconds.
func Margin(slo time.Duration, share float64) time.Duration {
	return time.Duration(math.Round(share*float64(slo)/1000)) * time.Microsecond
}

// LeastSLO is the smallest SLO of whole microseconds, at least one, that leaves need after
// the margin.
func LeastSLO(need time.Duration, share float64) time.Duration {
	// What is left after the margin never falls from one microsecond to the next.
	us := sort.Search(1<<40, func(us int) bool {
		slo := time.Duration(us) * time.Microsecond
		return slo-Margin(slo, share) >= need
	})
	return time.Duration(max(us, 1)) * time.Microsecond
}
