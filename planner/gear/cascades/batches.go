package cascades

import (
	"math"
	"slices"
	"time"
)

// Kind is a kind of devices.
type Kind struct {
	Name    string
	Devices int
	Memory  int64   // bytes of a device; 0 means no limit
	Price   float64 // of a device, if the price is minimised
}

// Variant holds the times and the memory of a model on a kind of devices.
type Variant struct {
	MedianTimes []time.Duration // [b-1]: undisturbed time of a batch of b; empty if it was not measured on the kind
	MeanTimes   []time.Duration // [b-1]: mean time of a batch of b; if nil, MedianTimes are used
	Memory      int64           // bytes
}

// MeanTime returns the mean time of a batch: the measured mean, or the median if no means were measured.
func (v *Variant) MeanTime(batch int) time.Duration {
	if v.MeanTimes != nil {
		return v.MeanTimes[batch-1]
	}
	return v.MedianTimes[batch-1]
}

// Model is a model of the family.
type Model struct {
	Name         string
	Variants     []Variant       // by kind of devices
	FastestTimes []time.Duration // [b-1]: the undisturbed time of a batch of b on the kind where it is fastest
}

// NewModel returns the model that has the given variant (times and memory) on each kind of devices, in the order of the
// problem's kinds. Its fastest times are the least of all kinds, by batch size.
func NewModel(name string, variants ...Variant) Model {
	m := Model{Name: name, Variants: variants}
	for _, v := range variants {
		for b, t := range v.MedianTimes {
			if b == len(m.FastestTimes) {
				m.FastestTimes = append(m.FastestTimes, t)
			}
			m.FastestTimes[b] = min(m.FastestTimes[b], t)
		}
	}
	return m
}

// cheapestBatch returns the batch size at which a variant (a model on a kind of devices) takes the least device time
// per sample, and that time in seconds. Only batches within the SLO and the problem's limit MaxBatchTime count; a
// single sample is exempt from that limit. If not even one sample keeps the SLO, it returns 0 and infinity.
func cheapestBatch(p *Problem, v Variant) (batch int, secondsPerSample float64) {
	secondsPerSample = math.Inf(1)
	for b, t := range v.MedianTimes {
		if t > p.SLO || b > 0 && p.MaxBatchTime > 0 && t > p.MaxBatchTime {
			continue
		}
		if perSample := v.MeanTime(b+1).Seconds() / float64(b+1); perSample <= secondsPerSample {
			batch, secondsPerSample = b+1, perSample
		}
	}
	return batch, secondsPerSample
}

// BatchesAndSpeeds returns, by kind of devices and model, the largest batch that plans use, and the seconds of device
// time per sample in it. That batch is the one within the SLO that is cheapest per sample. They are 0 and infinity if
// the model does not run on the kind: even one sample misses the SLO, it does not fit into the memory, or it should run
// on faster kinds only.
func BatchesAndSpeeds(p *Problem) (maxBatch [][]int, secondsPerSample [][]float64) {
	for k, kind := range p.Kinds {
		maxBatch, secondsPerSample = append(maxBatch, make([]int, len(p.Models))), append(secondsPerSample, slices.Repeat([]float64{math.Inf(1)}, len(p.Models)))
		for m := range p.Models {
			v := p.Models[m].Variants[k]
			fitsMemory := kind.Memory == 0 || v.Memory <= kind.Memory
			leavesKind := p.onlyFastKinds && fasterElsewhere(p, m, k)
			if fitsMemory && !leavesKind {
				maxBatch[k][m], secondsPerSample[k][m] = cheapestBatch(p, v)
			}
		}
	}
	return maxBatch, secondsPerSample
}

// fasterElsewhere reports whether model m should not run on a kind of devices, because even one sample takes longer
// than MaxBatchTime there, but not on another kind that has devices and memory for it. It is asked only under the
// strictest limit of WithBatchLimits.
func fasterElsewhere(p *Problem, m, kind int) bool {
	if times := p.Models[m].Variants[kind].MedianTimes; len(times) == 0 || times[0] <= p.MaxBatchTime {
		return false
	}
	for k := range p.Kinds {
		v := p.Models[m].Variants[k]
		if k != kind && p.Kinds[k].Devices > 0 && len(v.MedianTimes) > 0 && v.MedianTimes[0] <= p.MaxBatchTime && (p.Kinds[k].Memory == 0 || v.Memory <= p.Kinds[k].Memory) {
			return true
		}
	}
	return false
}

// WithBatchLimits returns copies of the problem under up to three limits on the time of a batch, each of which is
// planned on its own. First, a batch may take the whole SLO (a MaxBatchTime of 0). Second, it may take half the SLO,
// because the queue in front of long batches can cost more time than these save. Third, models also leave the kinds of
// devices on which a single sample takes longer than half the SLO, if it does not on another kind. A model that leaves
// a kind has batches of 0 there. If a limit leaves all batch sizes as they were under the limit before, it is left out.
func WithBatchLimits(p *Problem) (problems []*Problem) {
	fullSLO, halfSLO := *p, *p
	fullSLO.MaxBatchTime, halfSLO.MaxBatchTime = 0, p.SLO/2
	fastKinds := halfSLO
	fastKinds.onlyFastKinds = true
	var previousBatch [][]int
	for _, q := range []*Problem{&fullSLO, &halfSLO, &fastKinds} {
		if batch, _ := BatchesAndSpeeds(q); !slices.EqualFunc(previousBatch, batch, slices.Equal[[]int]) {
			problems, previousBatch = append(problems, q), batch
		}
	}
	return problems
}

// MinSecondsPerSample returns, by model, the least device time of a sample in seconds: its part of the cheapest batch
// within the SLO on any kind of devices. If no batch keeps the SLO, it is the time of a batch of one on the fastest
// kind.
func MinSecondsPerSample(p *Problem) []float64 {
	minSeconds := make([]float64, len(p.Models))
	for m := range minSeconds {
		minSeconds[m] = math.Inf(1)
		for _, v := range p.Models[m].Variants {
			_, perSample := cheapestBatch(p, v)
			minSeconds[m] = min(minSeconds[m], perSample)
		}
		if math.IsInf(minSeconds[m], 1) {
			minSeconds[m] = p.Models[m].FastestTimes[0].Seconds()
		}
	}
	return minSeconds
}
