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

// NewModel returns the model that has the given variant on each kind of devices.
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

// cheapestBatch returns the batch size at which a variant (a model on a kind of devices) is cheapest per sample
// within the SLO and the limit on batches, and its seconds per sample. If not even one sample keeps the SLO, it
// returns 0 and infinity.
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

// BatchesAndSpeeds returns the largest batch and the seconds per sample, by kind and model. They are 0 and
// infinity if a model misses the SLO on the kind or does not fit into its memory.
func BatchesAndSpeeds(p *Problem) (maxBatch [][]int, secondsPerSample [][]float64) {
	for k, kind := range p.Kinds {
		maxBatch, secondsPerSample = append(maxBatch, make([]int, len(p.Models))), append(secondsPerSample, slices.Repeat([]float64{math.Inf(1)}, len(p.Models)))
		for m := range p.Models {
			if v := p.Models[m].Variants[k]; (kind.Memory == 0 || v.Memory <= kind.Memory) && !(p.onlyFastKinds && fasterElsewhere(p, m, k)) {
				maxBatch[k][m], secondsPerSample[k][m] = cheapestBatch(p, v)
			}
		}
	}
	return maxBatch, secondsPerSample
}

// fasterElsewhere reports whether one sample of model m takes longer than MaxBatchTime on a kind of devices,
// but not on another kind that has devices and memory for it: then the model should run there only.
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

// WithBatchLimits returns the problem under up to three limits on the time of a batch: as long as the SLO; at
// most half as long, because the queue in front of long batches of an expensive model can cost more time than
// these save; and the same without models on kinds where a single sample takes longer, if another kind is
// faster. A limit that changes no batch size is left out.
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

// MinSecondsPerSample returns the least time of a sample of every model, in seconds: its part of the cheapest
// batch within the SLO on any kind of devices. If no batch keeps the SLO, it is the time of a batch of one.
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
