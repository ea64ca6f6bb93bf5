package flow

import (
	"math"
	"slices"

	"inferplan/formats"
)

// missedRateCost is the cost of one request per second that is not carried, as a multiple of the workers
// that would carry it. With 2, the cheapest capacity, if it could be any number, would be the median of the
// rate.
const missed = 2

// ScalingTable returns how many workers of each module serve at which rate, for rates up to maxRate.
// workerRates has, by module, the rate at the entry of the application of which one worker carries the
// module's part. A rate in the table stands for a random rate: normally distributed, with headroom times
// that rate as its mean and relativeSD of the mean as its standard deviation.
//
// Whole workers make the capacity rise in steps, and a step may cost one worker but gain next to nothing.
// Each row of the table has the numbers that minimize
//
//	workers + missedRateCost · workersPerRPS · E[rate above the capacity],
//
// which is the choice of a newsvendor. Only numbers of which no worker can be spared are considered.
func Scaling(carries []float64, headroom, spread, top float64) []formats.FlowRate {
	highest, most := headroom*top*(1+4*spread), slices.Max(carries)
	steps := make([][]float64, len(carries))
	for k, c := range carries {
		for m := 1.0; m*c <= highest+most; m++ {
			steps[k] = append(steps[k], m*c)
		}
	}
	return scaled(steps, headroom, spread, top)
}

// tableFromRates is ScalingTable for workers that differ. cumulativeRates has, by module, the rate that its
// first worker carries, its first two, and so on.
func scaled(steps [][]float64, headroom, spread, top float64) []formats.FlowRate {
	f := newFrontier(steps)
	var out []formats.FlowRate

	// Walk through the rates in 4500 steps, and add a row wherever other numbers are best.
	step, last := headroom*top/4500, -1
	for i := range 4500 {
		rate := float64(i) * step
		at := f.best(rate, max(spread*rate, 1e-9), last)
		if at == last {
			continue
		}
		last = at
		row := formats.FlowRate{AboveRPS: rate / headroom, Replicas: f.workers(at)}
		if n := len(out); n == 0 || !slices.Equal(out[n-1].Replicas, row.Replicas) {
			out = append(out, row)
		}
	}
	return out
}

// capacityFrontier is the list of capacities at which no worker can be spared.
type frontier struct {
	steps   [][]float64 // by module and number of workers, less one
	carried []float64   // requests per second, rising
	needs   []int       // workers of all modules, by capacity
	cost    float64     // workers of all modules that one request per second takes
	most    float64     // the largest rate that one worker carries
}

// newCapacityFrontier returns the frontier of some cumulative rates.
func newFrontier(steps [][]float64) *frontier {
	f := &frontier{steps: steps}
	for _, list := range steps {
		f.cost += 1 / list[0]
		f.most = max(f.most, list[0])
		f.carried = append(f.carried, list...)
	}
	slices.Sort(f.carried)
	f.carried = slices.Compact(f.carried)
	for i := range f.carried {
		n := 0
		for _, m := range f.workers(i) {
			n += m
		}
		f.needs = append(f.needs, n)
	}
	return f
}

// workersFor returns the fewest workers of each module that carry a capacity, given by its index. A module
// that cannot carry it has all of its workers.
func (f *frontier) workers(at int) []int {
	out := make([]int, len(f.steps))
	for k, list := range f.steps {
		n, _ := slices.BinarySearch(list, f.carried[at]-1e-9*list[0])
		out[k] = min(n+1, len(list))
	}
	return out
}

// bestCapacity returns the index of the capacity that is cheapest for a normally distributed rate. It looks
// from a few capacities below the last one upward.
func (f *frontier) best(mean, sd float64, last int) int {
	least, found := math.Inf(1), max(last, 0)
	for i := max(0, last-5); i < len(f.carried) && f.carried[i] <= mean+4*sd+f.most; i++ {
		// The expected rate above the capacity, sd · (φ(z) - z (1 - Φ(z))).
		z := (f.carried[i] - mean) / sd
		short := sd * (math.Exp(-z*z/2)/math.Sqrt(2*math.Pi) - z*math.Erfc(z/math.Sqrt2)/2)
		if v := float64(f.needs[i]) + missed*f.cost*short; v < least {
			least, found = v, i
		}
	}
	return found
}
