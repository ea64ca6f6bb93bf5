package stages

import (
	"math"
	"time"
)

// LinkGbps is the rate between two pools: the slower NIC; 0 when neither has one.
func LinkGbps(a, b *Pool) float64 {
	switch {
	case a.Gbps <= 0:
		return b.Gbps
	case b.Gbps <= 0:
		return a.Gbps
	}
	return math.Min(a.Gbps, b.Gbps)
}

// SampleMicros is the microseconds that one sample takes over a link.
func SampleMicros(bytes int64, gbps float64) float64 {
	if gbps <= 0 || bytes <= 0 {
		return 0
	}
	return float64(bytes) * 8 / (gbps * 1000)
}

// Never is the time of what does not pass: longer than any SLO, and short enough to
// be added up.
const Never = time.Duration(1 << 52)

// Reaches tells whether anything passes from a stage on pool a to one on pool b.
func (p *Problem) Reaches(a, b int) bool {
	return !p.Apart || a == b || LinkGbps(&p.Pools[a], &p.Pools[b]) > 0
}

// XferTime is the time that a batch takes from a stage on pool a to one on pool b.
func (p *Problem) XferTime(a, b int, bytes int64, batch int) time.Duration {
	if !p.Reaches(a, b) {
		return Never
	}
	us := SampleMicros(bytes, LinkGbps(&p.Pools[a], &p.Pools[b]))
	return time.Duration(math.Round(us * float64(batch) * 1000))
}

// LinkTime is the seconds that a sample takes of a NIC on the way from pool a to
// pool b, and whether it crosses a's and b's.
func (p *Problem) LinkTime(a, b int, bytes int64) (seconds float64, from, to bool) {
	seconds = SampleMicros(bytes, LinkGbps(&p.Pools[a], &p.Pools[b])) / 1e6
	return seconds, seconds > 0 && p.Pools[a].Gbps > 0, seconds > 0 && p.Pools[b].Gbps > 0
}
