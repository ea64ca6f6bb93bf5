package cascades

import (
	"math"
	"slices"
	"time"
)

// minLatency returns the least latency of a cascade at the SLO's percentile, without any queueing: the sum of the times
// of one sample at each of its models. Models that no more samples reach than the percentile allows to be late do not
// count, as these samples may all be late.
func (p *Problem) minLatency(c *Cascade) time.Duration {
	maxLate := int32((1 - p.Percentile) * float64(p.PlanningSamples.N))
	latency := time.Duration(0)
	for k, m := range c.Models {
		if c.ReachCounts[k] <= maxLate {
			break
		}
		latency += p.Models[m].FastestTimes[0]
	}
	return latency
}

// CascadesInTime returns the cascades whose least tail latency keeps the SLO.
func (p *Problem) CascadesInTime(list []Cascade) []Cascade {
	inTime := make([]Cascade, 0, len(list))
	for i := range list {
		if p.minLatency(&list[i]) <= p.SLO {
			inTime = append(inTime, list[i])
		}
	}
	return inTime
}

// MinLateShare returns the share of the requests that a cascade answers past the SLO even without queueing: those that
// reach the first model at which the times of one sample at all models so far sum to more than the SLO. If there is no
// such model, it returns 0.
func MinLateShare(p *Problem, c *Cascade) float64 {
	latency := time.Duration(0)
	for k, m := range c.Models {
		if latency += p.Models[m].FastestTimes[0]; latency > p.SLO {
			return float64(c.ReachCounts[k]) / float64(p.PlanningSamples.N)
		}
	}
	return 0
}

// ShortestSLO returns the least SLO that some cascade keeps, for the hint to users whose SLO is too short: the time of
// one sample on the fastest of the models that fit some device, each on the kind where it is fastest. If no model fits,
// it returns 0.
func (p *Problem) ShortestSLO() time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for m := range p.Models {
		for k, kind := range p.Kinds {
			if v := p.Models[m].Variants[k]; len(v.MedianTimes) > 0 && (kind.Memory == 0 || v.Memory <= kind.Memory) {
				shortest = min(shortest, p.Models[m].FastestTimes[0])
			}
		}
	}
	if shortest == math.MaxInt64 {
		return 0
	}
	return shortest
}

// maxLatencyFactor is the longest latency in multiples of the largest batches of all models.
const maxLatencyFactor = 20

// LatencyExtremes returns the ends between which a search for the least latency looks. low is below the latency of
// every plan: one sample passes the fastest model, whole or in stages. high is above that of every plan:
// maxLatencyFactor times the sum of the longest batch times of all models.
func (p *Problem) LatencyExtremes() (low, high time.Duration) {
	low = math.MaxInt64
	for m := range p.Models {
		low = min(low, p.Models[m].FastestTimes[0])
		longest := slices.Max(p.Models[m].FastestTimes)
		for k := range p.Kinds {
			if times := p.Models[m].Variants[k].MedianTimes; len(times) > 0 {
				longest = max(longest, slices.Max(times))
			}
		}
		high += maxLatencyFactor * longest
		if p.Blocks != nil && p.Blocks.Models[m].NumBlocks() > 1 {
			if t, ok := p.Blocks.MinLatency(m, 1); ok {
				low = min(low, t)
			}
		}
	}
	return low, high
}
