package pool

import (
	"math"
	"time"
)

// Rounding is the rule by which shares of devices become whole devices.
type Rounding int8

const (
	// Slot rounds up to whole devices per model, stage position and device
	// kind: pipelines of one model may share a device at one position only.
	Slot Rounding = iota
	// Fractional lets any stages share a device: only the sum is limited.
	Fractional
)

// Problem is what is to be planned, as numbers.
type Problem struct {
	Models        []Model
	Pools         []Pool
	MaxPartitions int
	Rounding      Rounding
	MarginShare   float64 // of each SLO; every Model.Margin is Margin(SLO, MarginShare)
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
	Weight   float64
	MinRPS   float64
	Build    float64   // microseconds that each request of a batch beyond the first waits for
	CutBytes []int64   // bytes per sample that cross after each block but the last; negative: no cut there
	Weights  []int64   // bytes per block
	Costs    [][]Share // [pool][v-1]
	// EveryBatch asks for all batch sizes, not only the measured ones. An
	// unmeasured size costs what the next larger measured one does, so it pays
	// only where waiting for a batch to fill has a cost.
	EveryBatch bool
}

// Share is what a model costs on a share of a device; empty when not measured.
type Share struct {
	Batches []BatchCost // ascending by batch
}

// BatchCost is the measured cost at one batch size.
type BatchCost struct {
	Batch  int
	Blocks []time.Duration
	Memory int64 // of the whole model at this batch; 0: not known
}

// At returns the cost of a batch size: that of the next larger measured one,
// nil beyond the largest.
func (s *Share) At(batch int) *BatchCost {
	for i := range s.Batches {
		if s.Batches[i].Batch >= batch {
			return &s.Batches[i]
		}
	}
	return nil
}

// network names what the blocks are of.
func (m *Model) network() string {
	if m.Network != "" {
		return m.Network
	}
	return m.Name
}

// NumBlocks is the number of the model's blocks.
func (m *Model) NumBlocks() int { return len(m.CutBytes) + 1 }

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

// linkGbps is the rate between two pools: the slower NIC; 0 when neither has one.
func linkGbps(a, b *Pool) float64 {
	switch {
	case a.Gbps <= 0:
		return b.Gbps
	case b.Gbps <= 0:
		return a.Gbps
	}
	return math.Min(a.Gbps, b.Gbps)
}

// sampleUS is the microseconds that one sample takes over a link.
func sampleUS(bytes int64, gbps float64) float64 {
	if gbps <= 0 || bytes <= 0 {
		return 0
	}
	return float64(bytes) * 8 / (gbps * 1000)
}

// XferTime is the time that a batch takes from a stage on pool a to one on pool b.
func (p *Problem) XferTime(a, b int, bytes int64, batch int) time.Duration {
	us := sampleUS(bytes, linkGbps(&p.Pools[a], &p.Pools[b]))
	return time.Duration(math.Round(us * float64(batch) * 1000))
}

// Template is a pooled pipeline without replica counts.
type Template struct {
	Model   int
	Batch   int
	Latency time.Duration // inference and transfer
	Stages  []Stage
}

// Stage is a block range on a device kind and share.
type Stage struct {
	First, Last int // half-open
	Pool        int
	Share       int // v of 1/v
	Infer       time.Duration
	Xfer        time.Duration // of the cut that leaves it
	Rate        float64       // requests/s of one replica; of one device on a time-shared pool
	Need        int64         // bytes of memory of one replica
}

// use is the devices of pool k that one request/s through t takes at least.
func (t *Template) use(k int) float64 {
	sum := 0.0
	for i := range t.Stages {
		if s := &t.Stages[i]; s.Pool == k {
			sum += 1 / (float64(s.Share) * s.Rate)
		}
	}
	return sum
}

// longest is the longest inference of t on pool k.
func (t *Template) longest(k int) time.Duration {
	var d time.Duration
	for i := range t.Stages {
		if s := &t.Stages[i]; s.Pool == k && s.Infer > d {
			d = s.Infer
		}
	}
	return d
}

// Infer is the time that a batch takes through blocks [first, last).
func Infer(s *Share, batch, first, last int) time.Duration {
	var sum time.Duration
	for _, d := range s.At(batch).Blocks[first:last] {
		sum += max(d, minBlock)
	}
	return sum
}
