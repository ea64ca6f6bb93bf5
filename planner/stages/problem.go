package stages

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Problem is which models may run on which devices, as numbers.
type Problem struct {
	Models        []Model
	Pools         []Pool
	MaxPartitions int // stages of a template, at most
	// Apart says that kinds without a network between them are on hosts of their own:
	// nothing passes between them.
	Apart bool
}

// Pool is a set of like devices.
type Pool struct {
	Kind      string
	Count     int
	MaxShares int     // shares 1/1..1/MaxShares
	PerNode   int     // devices behind one NIC
	Gbps      float64 // usable NIC rate; 0: no network
	Memory    int64   // bytes per device; 0: not limited
	Time      bool    // stages share every device in time
	OneCopy   bool    // of a time-shared pool: stages with the same blocks have their weights once in a device
	OffWire   bool    // whole models only: nothing passes from or to these devices
}

// Model is one model with its target and its costs.
type Model struct {
	Name     string
	Network  string // what its blocks are blocks of; empty: Name. Classes of one model share it
	SLO      time.Duration
	Margin   time.Duration // kept back from the SLO
	Weight   float64       // of its rate in the objective; templates do not depend on it
	MinRPS   float64       // floor of its rate; templates do not depend on it
	Build    float64       // microseconds that each request of a batch beyond the first waits for
	CutBytes []int64       // bytes per sample that cross after each block but the last; negative: no cut there
	Weights  []int64       // bytes per block
	Costs    [][]Share     // [pool][v-1]
	// EveryBatch asks for all batch sizes, not only the measured ones. An unmeasured
	// size must keep the SLO with what the next larger measured one takes. Between two
	// measured ones its time is on the line between theirs, so that one of them carries
	// no less: others pay only where waiting for a batch to fill has a cost.
	EveryBatch bool
}

// Share is what a model costs on a share of a device; empty when not measured.
type Share struct {
	Batches []BatchCost // ascending by batch
	Largest int         // batch that may be planned; 0: any that was measured
	// Pads tells, for each place before, between and after the blocks, whether ranges that
	// begin and end at such places run a batch as the next larger measured one. Nil: all do.
	Pads []bool
	// Dispatch is what a batch takes up its device beside its run. It counts on average, where the profile has means.
	Dispatch time.Duration
}

// BatchCost is the measured cost at one batch size.
type BatchCost struct {
	Batch  int
	Blocks []time.Duration
	Memory int64   // of the whole model at this batch; 0: not known
	Mean   float64 // what the whole takes on average, over its median; 0: not known
	Pieces []Piece // what was measured in one piece, fewest blocks first; see Fit
}

// At returns what a batch size costs at most: the cost of the next larger measured
// one, nil beyond the largest.
func (s *Share) At(batch int) *BatchCost {
	for i := range s.Batches {
		if s.Batches[i].Batch >= batch {
			return &s.Batches[i]
		}
	}
	return nil
}

// NetworkName names what the blocks are of.
func (m *Model) NetworkName() string { return cmp.Or(m.Network, m.Name) }

// NumBlocks is the number of the model's blocks.
func (m *Model) NumBlocks() int { return len(m.CutBytes) + 1 }

// WeightBytes is the bytes of the weights of blocks [first, last).
func (m *Model) WeightBytes(first, last int) int64 {
	var sum int64
	for _, w := range m.Weights[first:last] {
		sum += w
	}
	return sum
}

// Sizes lists the batch sizes of a share that are worth looking at: the measured ones,
// and the largest that may be planned.
func (s *Share) Sizes() []int {
	var out []int
	for i := range s.Batches {
		b := s.Batches[i].Batch
		if s.Largest > 0 && b >= s.Largest {
			return append(out, s.Largest)
		}
		out = append(out, b)
	}
	return out
}

// BatchSizes lists the batch sizes worth looking at.
func (m *Model) BatchSizes() []int {
	seen := map[int]bool{}
	largest := 0
	for k := range m.Costs {
		for v := range m.Costs[k] {
			for _, b := range m.Costs[k][v].Sizes() {
				seen[b] = true
				largest = max(largest, b)
			}
		}
	}
	if m.EveryBatch {
		for b := 1; b < largest; b++ {
			seen[b] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// BuildTime is the time for which the first request of a batch waits for the last.
func (m *Model) BuildTime(batch int) time.Duration {
	return time.Duration(math.Round(m.Build * float64(batch-1) * 1000))
}

// Budget is what inference and transfer of a batch may take.
func (m *Model) Budget(batch int) time.Duration {
	return m.SLO - m.Margin - m.BuildTime(batch)
}

// minBlock is the least that a block is taken to cost: the resolution of the
// reference measurements.
const minBlock = time.Microsecond
