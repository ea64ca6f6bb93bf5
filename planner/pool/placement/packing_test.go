package placement

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever is packed, no bin holds more than a whole device and nothing is lost.
func TestPackedBinsHoldAtMostOneDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pieces []replicaPiece
		total, need := 0, 0.0
		for i := range rapid.IntRange(0, 8).Draw(t, "pieces") {
			q := replicaPiece{pipeline: i, share: rapid.IntRange(1, 6).Draw(t, "share"), replicas: rapid.IntRange(0, 9).Draw(t, "n")}
			total += q.replicas
			need += float64(q.replicas) / float64(q.share)
			pieces = append(pieces, q)
		}
		bins := packPieces(pieces)
		got := 0
		for _, b := range bins {
			sum := 0.0
			for _, q := range b.pieces {
				sum += float64(q.replicas) / float64(q.share)
				got += q.replicas
			}
			if sum > 1+1e-9 || sum == 0 {
				t.Errorf("a device holds %v", sum)
			}
		}
		if got != total {
			t.Errorf("%d of %d replicas", got, total)
		}
		if float64(len(bins)) < need-1e-9 {
			t.Errorf("%d devices for %v", len(bins), need)
		}
	})
}
