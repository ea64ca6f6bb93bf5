package stages

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Problem says which models may run on which devices, as numbers.
type Problem struct {
	Models        []Model
	Pools         []Pool
	MaxPartitions int // most stages of a template
	// SeparateHosts says that device kinds without a network between them are on separate
	// hosts, so that nothing passes between them.
	SeparateHosts bool
}

// Pool is a set of identical devices.
type Pool struct {
	Kind            string
	Count           int
	MaxShares       int     // shares 1/1 to 1/MaxShares
	PerNode         int     // devices that share a NIC
	Gbps            float64 // usable rate of the NIC; 0 if there is no network
	Memory          int64   // bytes per device; 0 if it is not limited
	TimeShared      bool    // stages take turns on every device
	SharedWeights   bool    // on a time-shared pool, stages with the same blocks share their weights in a device's memory
	WholeModelsOnly bool    // nothing passes to or from these devices, so they run whole models
}

// Model is a model with its targets and its costs.
type Model struct {
	Name            string
	Network         string // name of the network to which the blocks belong; if empty, Name. The classes of a model share it
	SLO             time.Duration
	Margin          time.Duration  // part of the SLO that is kept back
	Weight          float64        // of its rate in the objective; templates do not depend on it
	MinRPS          float64        // least rate; templates do not depend on it
	BatchWaitMicros float64        // microseconds that a batch waits for each request beyond the first
	CutBytes        []int64        // bytes per sample that cross after each block but the last; negative if no cut is possible there
	Weights         []int64        // bytes of each block
	ShareCosts      [][]ShareCosts // by pool and share: [pool][v-1]
	// EveryBatch asks for all batch sizes instead of the measured ones only. An unmeasured
	// size must keep the SLO with the time of the next larger measured size. Its expected time
	// lies between those of its neighbours, so one of these carries no less: other sizes pay
	// only if waiting for a batch to fill has a cost.
	EveryBatch bool
}

// ShareCosts holds the costs of a model on a share of a device. It is empty if nothing was measured.
type ShareCosts struct {
	Batches  []BatchCost // in ascending order of batch size
	MaxBatch int         // largest batch size that may be planned; 0 for the largest measured one
	// PadsToNext says, for each place before, between and after the blocks, whether ranges that
	// begin and end at such places run a batch like the next larger measured size. If nil, all do.
	PadsToNext []bool
	// Dispatch is the time for which a batch occupies its device beside its run. It is part of
	// the mean time, if the profile has means.
	Dispatch time.Duration
}

// BatchCost is the measured cost at one batch size.
type BatchCost struct {
	Batch      int
	Blocks     []time.Duration // measured times of single blocks
	Memory     int64           // bytes of the whole model at this batch size; 0 if unknown
	MeanFactor float64         // mean time of the whole model over its median; 0 if unknown
	Pieces     []MeasuredRange // ranges that were measured in one piece, those with the fewest blocks first; see SetPieces
}

// CostAt returns the cost of the smallest measured batch size that is at least the given one. A batch of the given size
// takes no longer than that. Beyond the largest measured size it returns nil.
func (s *ShareCosts) CostAt(batch int) *BatchCost {
	for i := range s.Batches {
		if s.Batches[i].Batch >= batch {
			return &s.Batches[i]
		}
	}
	return nil
}

// NetworkName returns the name of the network to which the blocks belong.
func (m *Model) NetworkName() string { return cmp.Or(m.Network, m.Name) }

// NumBlocks returns the number of the model's blocks.
func (m *Model) NumBlocks() int { return len(m.CutBytes) + 1 }

// WeightBytes returns the bytes of the weights of the blocks from firstBlock to endBlock-1.
func (m *Model) WeightBytes(firstBlock, endBlock int) int64 {
	var sum int64
	for _, w := range m.Weights[firstBlock:endBlock] {
		sum += w
	}
	return sum
}

// PlannableSizes returns the batch sizes of a share of a device that are worth trying, in rising order: the measured
// ones below MaxBatch, and MaxBatch, the largest that may be planned, if a measured one reaches it. With MaxBatch 0 it
// returns all measured ones.
func (s *ShareCosts) PlannableSizes() []int {
	var sizes []int
	for i := range s.Batches {
		b := s.Batches[i].Batch
		if s.MaxBatch > 0 && b >= s.MaxBatch {
			return append(sizes, s.MaxBatch)
		}
		sizes = append(sizes, b)
	}
	return sizes
}

// BatchSizes returns, in rising order, the batch sizes of a model that are worth trying on any device: the measured ones up to
// the limit on batches and that limit or, with EveryBatch, all up to the largest of these.
func (m *Model) BatchSizes() []int {
	// The set of sizes over all device kinds and shares.
	sizes := map[int]bool{}
	largest := 0
	for k := range m.ShareCosts {
		for v := range m.ShareCosts[k] {
			for _, b := range m.ShareCosts[k][v].PlannableSizes() {
				sizes[b] = true
				largest = max(largest, b)
			}
		}
	}
	if m.EveryBatch {
		for b := 1; b < largest; b++ {
			sizes[b] = true
		}
	}
	return slices.Sorted(maps.Keys(sizes))
}

// BatchWait returns the time for which the first request of a batch waits for the last one.
func (m *Model) BatchWait(batch int) time.Duration {
	return time.Duration(math.Round(m.BatchWaitMicros * float64(batch-1) * 1000))
}

// Budget returns the time that execution and transfers of a batch may take.
func (m *Model) Budget(batch int) time.Duration {
	return m.SLO - m.Margin - m.BatchWait(batch)
}

// minBlock is the least time of a block in computations: the resolution of the reference
// measurements.
const minBlock = time.Microsecond
