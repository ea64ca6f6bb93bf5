package templates

import (
	"slices"
	"testing"

	"inferplan/testkit/pooldraw"
)

// A problem with too many stage sequences keeps the most blocks with which they can be listed; one
// with few keeps all.
func TestBlocksAreLimited(t *testing.T) {
	few := pooldraw.Synthetic{Models: 3, Classes: 1, Kinds: 2, GPUs: 20, Layers: 40, Partitions: 2, Shares: 2, Batches: 2}.Problem()
	if n := LimitBlocks(few); n != 0 {
		t.Errorf("a problem of %g sequences is limited to %d blocks", countSequences(few), n)
	}
	for _, partitions := range []int{2, 3, 5} {
		p := pooldraw.Synthetic{Models: 3, Classes: 1, Kinds: 4, GPUs: 100, Layers: 2500, Partitions: partitions, Shares: 4, Batches: 8}.Problem()
		all := *p
		n := LimitBlocks(p)
		if n < 1 || countSequences(p) > MaxSequences {
			t.Fatalf("%d stages: %d blocks with %g sequences, expected at most %d", partitions, n, countSequences(p), MaxSequences)
		}
		for d := range p.Models {
			if cuts := len(slices.DeleteFunc(slices.Clone(p.Models[d].CutBytes), func(b int64) bool { return b < 0 })); cuts > n-1 {
				t.Errorf("%d stages: model %d may be cut at %d places, expected at most %d", partitions, d, cuts, n-1)
			}
		}
		all.Models = slices.Clone(all.Models)
		if all.PrePartition(n + 1); countSequences(&all) <= MaxSequences {
			t.Errorf("%d stages: %d blocks, %d have %g sequences", partitions, n, n+1, countSequences(&all))
		}
	}
}
