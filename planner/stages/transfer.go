package stages

import (
	"math"
	"time"
)

// LinkGbps returns the network rate between two pools, in Gbit/s: that of the slower network card, or of the only
// one, or 0 if neither pool has one.
func LinkGbps(a, b *Pool) float64 {
	switch {
	case a.Gbps <= 0:
		return b.Gbps
	case b.Gbps <= 0:
		return a.Gbps
	}
	return math.Min(a.Gbps, b.Gbps)
}

// SampleMicros returns the microseconds that one sample of so many bytes takes over a link. It is 0 without a
// network, which has 0 Gbit/s.
func SampleMicros(bytes int64, gbps float64) float64 {
	if gbps <= 0 || bytes <= 0 {
		return 0
	}
	return float64(bytes) * 8 / (gbps * 1000)
}

// UnreachableTime is the time of a transfer that is impossible: longer than any SLO, and short enough
// to be added up.
const UnreachableTime = time.Duration(1 << 52)

// IsReachable reports whether anything can pass from a stage on pool a to one on pool b.
func (p *Problem) IsReachable(a, b int) bool {
	return !p.SeparateHosts || a == b || LinkGbps(&p.Pools[a], &p.Pools[b]) > 0
}

// TransferTime returns the time that the tensors of a batch take from a stage on pool a to one on pool b, for templates
// and their SLO. bytes crosses per sample (request). Between pools without a network it is 0; if nothing can pass from
// one to the other, it is UnreachableTime, longer than any SLO.
func (p *Problem) TransferTime(a, b int, bytes int64, batch int) time.Duration {
	if !p.IsReachable(a, b) {
		return UnreachableTime
	}
	micros := SampleMicros(bytes, LinkGbps(&p.Pools[a], &p.Pools[b])) // of one sample
	return time.Duration(math.Round(micros * float64(batch) * 1000))
}

// LinkTime returns the seconds for which a sample occupies a NIC on the way from pool a to pool b, and
// whether it occupies the NICs of a and of b.
func (p *Problem) LinkTime(a, b int, bytes int64) (seconds float64, usesFromNIC, usesToNIC bool) {
	seconds = SampleMicros(bytes, LinkGbps(&p.Pools[a], &p.Pools[b])) / 1e6
	return seconds, seconds > 0 && p.Pools[a].Gbps > 0, seconds > 0 && p.Pools[b].Gbps > 0
}
