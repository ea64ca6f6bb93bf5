package stages

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/planner/lists"
)

// The values of the option for the type in which cuts cross.
const (
	CutsAuto = "auto" // float16 if the profile shows that answers stay the same
	CutsFP32 = "fp32"
)

// minAgreement is the share of samples whose top answer must stay the same for a cut to cross as
// float16.
const minAgreement = 0.99

// Cut describes what crosses after a block, per sample.
type Cut struct {
	Bytes   int64 // negative if unknown, so that no cut is possible; 0 if nothing crosses
	DType   string
	Tensors []string
}

// CutAfterBlock returns the bytes of a sample, the names and the data type of the tensors that pass from a block to the
// next stage, if a model is cut behind the block. The type is float32 with these exceptions. It is float16 if network
// is true, which says that stages may be on both sides of a network, and the profile shows that answers stay the
// same: on one host float16 gains nothing. It is float16, too, if the profile only has the size as float16, as
// profiles that were imported may. dtype is the option cut-dtype, CutsFP32 to allow float32 alone. If the size is
// unknown, or known only as a forbidden float16, Bytes is negative: no cut is allowed there.
func CutAfterBlock(b *formats.Block, network bool, dtype string) Cut {
	c := Cut{Bytes: b.CutBytesFP32.Bytes(), DType: "FP32"}
	c.Tensors = lists.Map(len(b.Cut), func(i int) string { return b.Cut[i].Name })
	only16 := !b.CutBytesFP32.IsKnown() && b.CutBytesFP16.IsKnown()
	proven := b.FP16 != nil && b.FP16.Top1Agreement >= minAgreement
	switch {
	case only16 && dtype != CutsFP32:
		c.Bytes, c.DType = b.CutBytesFP16.Bytes(), "FP16"
	case only16:
		c.Bytes = -1
	case network && b.CutBytesFP16.IsKnown() && proven && dtype != CutsFP32:
		c.Bytes, c.DType = b.CutBytesFP16.Bytes(), "FP16"
	case !b.CutBytesFP32.IsKnown():
		c.Bytes = -1 // no time can be promised for an unknown size
	}
	return c
}

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
