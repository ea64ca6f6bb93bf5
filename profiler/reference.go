package profiler

import (
	"time"

	"inferplan/engine"
)

// reference is a fixed piece of work in plain Go. Its time depends on the machine's speed, but on no model, engine
// or option. Half of it computes in the first cache. The other half reads memory that does not fit into the second
// cache.
type reference struct {
	cached, large []float32
	sum           float32 // makes sure that the work is not optimised away
}

// Sizes of the reference work, in numbers of four bytes, and how often the small part is read.
const (
	referenceSmall  = 4 << 10 // 16 KiB
	referenceLarge  = 2 << 20 // 8 MiB
	referencePasses = 4096
)

// newReference allocates the memory that the reference work reads, and fills it with small numbers. The work takes
// the same time with any ordinary numbers.
func newReference() *reference {
	r := &reference{cached: make([]float32, referenceSmall), large: make([]float32, referenceLarge)}
	for i := range r.cached {
		r.cached[i] = float32(i&7) * 0.125
	}
	for i := range r.large {
		r.large[i] = float32(i&7) * 0.125
	}
	return r
}

// measure does the reference work once and returns the CPU time of the calling thread. It is called after every
// round of samples: a longer time shows that the machine was slower.
func (r *reference) measure() time.Duration {
	begun := engine.ThreadCPU()
	for range referencePasses {
		r.sum += sumOfSquares(r.cached)
	}
	r.sum += sumOfSquares(r.large)
	return engine.ThreadCPU() - begun
}

// sumOfSquares returns the sum of the squares of a list, whose length is a multiple of eight. It adds in eight
// independent chains. So the limit is the processor's arithmetic units, which other threads share, and not the
// latency of one unit.
func sumOfSquares(list []float32) float32 {
	var a, b, c, d, e, f, g, h float32
	for ; len(list) >= 8; list = list[8:] {
		a += list[0] * list[0]
		b += list[1] * list[1]
		c += list[2] * list[2]
		d += list[3] * list[3]
		e += list[4] * list[4]
		f += list[5] * list[5]
		g += list[6] * list[6]
		h += list[7] * list[7]
	}
	return a + b + c + d + e + f + g + h
}
