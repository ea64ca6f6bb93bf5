package flow

import (
	"math"
	"slices"

	"inferplan/formats"
)

// missed is what a request per second that is not carried costs, in workers that would
// carry it: with 2, a smooth capacity would be the median of the rate.
const missed = 2

// Scaling is how many workers serve at which rate, by module: carries is the rate at the
// entry of which a worker of a module carries its part, and rates go up to top. A rate
// stands for headroom times as much, normally distributed with a standard deviation of
// so much of itself (spread).
//
// Whole workers make capacity rise in steps, and a step may cost one worker and gain
// next to nothing. A row has the numbers with the least sum of workers and of what is
// expected to be missed, which is the newsvendor's choice. Only numbers of which no
// worker can be spared come into question.
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

// scaled is Scaling where workers of a module differ: steps are what its first one
// carries, its first two and so on.
func scaled(steps [][]float64, headroom, spread, top float64) []formats.FlowRate {
	f := newFrontier(steps)
	var out []formats.FlowRate
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

// frontier is the capacities of which no worker can be spared.
type frontier struct {
	steps   [][]float64 // by module and workers
	carried []float64   // rising
	needs   []int       // workers of all modules, by capacity
	cost    float64     // of a request per second, in workers
	most    float64     // that a worker carries
}

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

// workers are the fewest that carry a capacity of the frontier, by module; all of a
// module that cannot.
func (f *frontier) workers(at int) []int {
	out := make([]int, len(f.steps))
	for k, list := range f.steps {
		n, _ := slices.BinarySearch(list, f.carried[at]-1e-9*list[0])
		out[k] = min(n+1, len(list))
	}
	return out
}

// best is the capacity for a normally distributed rate, of those from a few below the
// last one on.
func (f *frontier) best(mean, sd float64, last int) int {
	least, found := math.Inf(1), max(last, 0)
	for i := max(0, last-5); i < len(f.carried) && f.carried[i] <= mean+4*sd+f.most; i++ {
		z := (f.carried[i] - mean) / sd
		short := sd * (math.Exp(-z*z/2)/math.Sqrt(2*math.Pi) - z*math.Erfc(z/math.Sqrt2)/2)
		if v := float64(f.needs[i]) + missed*f.cost*short; v < least {
			least, found = v, i
		}
	}
	return found
}
