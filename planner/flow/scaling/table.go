package scaling

import (
	"errors"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// missedRateCost is the cost of one request per second that is not carried, as a multiple of the workers
// that would carry it. With 2, the cheapest capacity, if it could be any number, would be the median of the
// rate.
const missedRateCost = 2

// rateSteps is the number of rates for which the best numbers of workers are computed, from 0 to the largest.
const rateSteps = 4500

// Table returns how many workers of each module serve at which rate, for rates up to maxRate. Rates are those at the
// entry of the application, in requests per second. cumulativeRates[k][n-1] is the largest rate at which the first n
// workers of module k carry what comes to the module.
//
// A rate in the table stands for a random rate, because the rate at run time is an estimate: it is normally
// distributed, with headroom times that rate as its mean and relativeSD of the mean as its standard deviation.
//
// Whole workers make the capacity rise in steps, and a step may cost one worker but gain next to nothing. Each
// row of the table has the numbers of workers that minimize
//
//	workers + missedRateCost · workersPerRPS · E[rate above the capacity],
//
// where workersPerRPS is what a request per second takes in workers. (Operations research calls this the choice of a
// newsvendor.) The candidates are, for each capacity that some module's workers give, the fewest workers of all modules
// that have it (capacityFrontier).
func Table(cumulativeRates [][]float64, headroom, relativeSD, maxRate float64) []formats.FlowRate {
	f := newCapacityFrontier(cumulativeRates)
	var table []formats.FlowRate

	// Walk through the mean rates in small steps, and add a row wherever other numbers are best. A row's AboveRPS is the rate
	// without headroom.
	meanStep, lastIndex := headroom*maxRate/rateSteps, -1
	for i := range rateSteps {
		mean := float64(i) * meanStep
		index := f.bestCapacity(mean, max(relativeSD*mean, 1e-9), lastIndex) // a deviation of 0 would be divided by
		if index == lastIndex {
			continue
		}
		lastIndex = index
		row := formats.FlowRate{AboveRPS: mean / headroom, Replicas: f.workersFor(index)}
		if n := len(table); n == 0 || !slices.Equal(table[n-1].Replicas, row.Replicas) {
			table = append(table, row)
		}
	}
	return table
}

// capacityFrontier is the list of capacities at which no worker can be spared: for any lower number of workers of
// some module, the capacity would be lower.
type capacityFrontier struct {
	cumulativeRates [][]float64 // by module and number of workers, less one
	capacities      []float64   // requests per second, rising
	workerTotals    []int       // workers of all modules, by capacity
	workersPerRPS   float64     // workers of all modules that one request per second takes, for the cost of a missed rate
	maxWorkerRate   float64     // the largest rate that one worker carries, which ends the search of bestCapacity
}

// newCapacityFrontier returns the capacities (rates at the entry, in requests per second) that modules reach with whole
// numbers of workers, by rising rate, with the fewest workers of all modules that carry each. cumulativeRates has, by
// module, the rate that its first worker carries, its first two, and so on.
func newCapacityFrontier(cumulativeRates [][]float64) *capacityFrontier {
	f := &capacityFrontier{cumulativeRates: cumulativeRates}
	for _, list := range cumulativeRates {
		f.workersPerRPS += 1 / list[0]
		f.maxWorkerRate = max(f.maxWorkerRate, list[0])
		f.capacities = append(f.capacities, list...)
	}
	slices.Sort(f.capacities)
	f.capacities = slices.Compact(f.capacities)
	for i := range f.capacities {
		total := 0
		for _, workers := range f.workersFor(i) {
			total += workers
		}
		f.workerTotals = append(f.workerTotals, total)
	}
	return f
}

// workersFor returns, by module, the fewest workers (replicas) that carry a capacity, a rate at the entry given by its index in
// f.capacities. A module that cannot carry it has all of its workers.
func (f *capacityFrontier) workersFor(index int) []int {
	workers := make([]int, len(f.cumulativeRates))
	for k, list := range f.cumulativeRates {
		n, _ := slices.BinarySearch(list, f.capacities[index]-1e-9*list[0])
		workers[k] = min(n+1, len(list))
	}
	return workers
}

// bestCapacity returns the index, in f.capacities, of the capacity that is cheapest for a rate at the entry that is normally distributed
// with this mean and standard deviation: its workers, plus the cost of the expected rate above it. It looks from a few capacities below
// lastIndex (the best for the last lower rate, -1 at first) upward, as the best one hardly falls while the rate rises.
func (f *capacityFrontier) bestCapacity(mean, sd float64, lastIndex int) int {
	minCost, bestIndex := math.Inf(1), max(lastIndex, 0)
	for i := max(0, lastIndex-5); i < len(f.capacities) && f.capacities[i] <= mean+4*sd+f.maxWorkerRate; i++ {
		// The expected rate above the capacity, sd · (φ(z) - z (1 - Φ(z))), of the normal density φ and distribution Φ.
		z := (f.capacities[i] - mean) / sd
		expectedMissed := sd * (math.Exp(-z*z/2)/math.Sqrt(2*math.Pi) - z*math.Erfc(z/math.Sqrt2)/2)
		if v := float64(f.workerTotals[i]) + missedRateCost*f.workersPerRPS*expectedMissed; v < minCost {
			minCost, bestIndex = v, i
		}
	}
	return bestIndex
}

// RowAt returns the row of a plan's table for a rate.
func RowAt(s *formats.FlowScaling, rate float64) formats.FlowRate {
	row := s.Table[0]
	for _, r := range s.Table {
		if r.AboveRPS < rate {
			row = r
		}
	}
	return row
}

// Pace says how fast a policy follows the arrivals: over which time it averages queueing and rates,
// how long a rate counts, and how far ahead it is extrapolated.
type Pace struct {
	QueueWindow, RateWindow, HoldTime, Lookahead time.Duration
}

// PaceFor returns the pace at which replicas come and go (windows and times to hold) for arrivals whose count
// per second varies with coefficient of variation cv. PARD advises the window of queueing (section 5.4): 5 to 7
// s for stable traces, 3 to 5 s for bursty ones, 1 to 3 s for the most bursty. The other times were best on a
// trace of each of the three kinds (bench/pard, part hours).
func PaceFor(cv float64) Pace {
	switch {
	case cv < .5:
		return Pace{QueueWindow: 5 * time.Second, RateWindow: 8 * time.Second, HoldTime: 30 * time.Second}
	case cv < 1:
		return Pace{QueueWindow: 4 * time.Second, RateWindow: 8 * time.Second, HoldTime: 30 * time.Second, Lookahead: 3 * time.Second}
	}
	return Pace{QueueWindow: 2 * time.Second, RateWindow: 4 * time.Second, HoldTime: 8 * time.Second}
}

// ArrivalPace returns the pace at which replicas come and go (windows and times to hold) for the workload's arrivals, by how much these
// vary in its trace. Arrivals without a trace count as stable, because a process has one rate; so do those of a trace that cannot be
// read, with a warning.
func ArrivalPace(in *kind.Problem, run *kind.SolveRun, apps formats.Applications) Pace {
	a := in.Workload.Arrivals
	if a == nil || a.Trace == "" {
		return PaceFor(0)
	}
	cv, err := rateVariation(kind.PathIn(in.WorkloadDir, a.Trace), apps)
	if err != nil {
		run.Warn("the trace of the arrivals cannot be read, so the plan is for stable ones: %v", err)
		return PaceFor(0)
	}
	p := PaceFor(cv)
	run.Assume("window: queueing is averaged over %v, for arrivals per second with a coefficient of variation of %.2f", p.QueueWindow, cv)
	return p
}

// rateVariation returns the coefficient of variation of the arrivals per second in a trace file, for the named applications: the standard
// deviation of the counts of whole seconds over their mean. If no whole second has arrivals, it returns 0.
func rateVariation(path string, apps formats.Applications) (cv float64, err error) {
	names := lists.Map(len(apps), func(i int) string { return apps[i].Name })
	t, err := arrivals.OpenTrace(path, names, arrivals.IgnoreOther())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()

	// Count the arrivals of every second.
	var seconds, sum, sumSquares, arrivalCount float64
	second := time.Duration(0)
	// Next returns the next arrival and moves on, so each turn of the loop counts one. The last second, which
	// may be cut short, is left out.
	for q := (arrivals.Request{}); t.Next(&q); arrivalCount++ {
		for q.ArrivedAt >= second+time.Second {
			seconds, sum, sumSquares = seconds+1, sum+arrivalCount, sumSquares+arrivalCount*arrivalCount
			second, arrivalCount = second+time.Second, 0
		}
	}
	if sum == 0 {
		return 0, arrivals.Err(t)
	}
	mean := sum / seconds
	return math.Sqrt(max(0, sumSquares/seconds-mean*mean)) / mean, arrivals.Err(t)
}
