package seeded

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// New returns the stream with this name under this seed. It is not safe for
// use by several goroutines: give each its own name.
func New(seed uint64, stream string) *rand.Rand {
	hi, lo := key(seed, stream)
	return rand.New(rand.NewPCG(hi, lo))
}

// Seed derives a seed from a seed and a name, for a part that names streams
// itself: replication 3 of a run gets Seed(seed, "run/3").
func Seed(seed uint64, stream string) uint64 {
	hi, _ := key(seed, stream)
	return hi
}

// key derives the 128-bit state of a random generator from the seed and the name of a stream, so that streams of
// one seed are independent.
func key(seed uint64, stream string) (hi, lo uint64) {
	b := make([]byte, 8, 8+len(stream))
	binary.BigEndian.PutUint64(b, seed)
	sum := sha256.Sum256(append(b, stream...))
	return binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])
}
