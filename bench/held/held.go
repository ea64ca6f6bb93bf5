package held

import (
	"context"
	"math"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/formats"
	"inferplan/sim"
)

// Tester simulates plans with seeds that no plan was made with. A plan holds rates in proportion
// to the weights of its models if every model attains its share of requests in time at them.
type Tester struct {
	Runs     int
	Seed     uint64
	Requests float64 // about, in a run
}

// runsOfQueues multiplies the runs of a queue: some have long waits, most have none.
const runsOfQueues = 4

// lengthOfCascades multiplies the length of a run of a cascade: near its highest rate a rare burst leaves waits that last.
const lengthOfCascades = 5

// Runs are doubled, up to maxExtension times, until it is clear whether a share is missed: by how much is at least
// clearErrors standard errors, or its standard error is at most smallError. Near the capacity of the devices, the shares
// of short runs lie far apart.
const (
	maxExtension = 16
	clearErrors  = 3
	smallError   = 0.001
)

// step is the resolution of the rate that a plan holds, as a share of it.
const step = 0.0025

// Rate returns the highest rps per weight that a plan holds.
func (h *Tester) Rate(ctx context.Context, plan *formats.Plan) (float64, error) {
	lo, hi, at := 0.0, math.Inf(1), plan.Objective.Value
	if c := plan.Certificate; c != nil && c.LoadFactor > 0 {
		at *= c.LoadFactor
	}
	width := 0.02
	for hi > lo*(1+step) && at > 1e-9 {
		missed, err := h.misses(ctx, plan, at)
		if err != nil {
			return 0, err
		}
		if missed <= 0 {
			lo = at
		} else {
			hi = at
		}
		switch {
		case math.IsInf(hi, 1):
			at *= 1 + width
			width *= 2
		case lo == 0:
			at /= 1 + width
			width *= 2
		default:
			at = (lo + hi) / 2
		}
	}
	return lo, nil
}

// misses returns the most by which a model or class misses its share of requests in time, at rates of its weight times so many
// rps.
func (h *Tester) misses(ctx context.Context, plan *formats.Plan, perWeight float64) (float64, error) {
	var rates []float64
	for _, served := range plan.ServedModels() {
		rates = append(rates, perWeight*max(served.Weight, 1e-9))
	}
	return h.missed(ctx, plan, rates)
}

// MissedAsStated is misses at the rates that the plan states. Of a plan for the most goodput, it is the part of the goodput stated
// that is missing.
func (h *Tester) MissedAsStated(ctx context.Context, plan *formats.Plan) (float64, error) {
	var rates []float64
	for _, served := range plan.ServedModels() {
		rates = append(rates, served.RPS)
	}
	return h.missed(ctx, plan, rates)
}

// missed returns the most by which a model or class misses its share at rates.
func (h *Tester) missed(ctx context.Context, plan *formats.Plan, rates []float64) (float64, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, rps := range rates {
		sum += rps
	}
	sc.Rates = rates
	sc.Seed = h.Seed
	sc.Duration = time.Duration(min(max(h.Requests/sum, 5), 600) * float64(time.Second))
	if formats.GearOf(plan) != nil {
		sc.Duration *= lengthOfCascades
	}
	if q := formats.QueueOf(plan); q != nil {
		sc.Duration = q.Runs.DurationUS.D() // waits are long
	}
	sc.Warmup = sc.Duration / 10
	runs, count := sim.Replications{Scenario: sc}, h.Runs
	if formats.QueueOf(plan) != nil {
		count *= runsOfQueues
	}
	for most := count * maxExtension; ; count *= 2 {
		if err := runs.Extend(ctx, count); err != nil {
			return 0, err
		}
		shortfall, standardError := shortfallIn(plan, rates, &runs)
		if isClear := math.Abs(shortfall) > clearErrors*standardError; isClear || standardError <= smallError || count >= most {
			return shortfall, nil
		}
	}
}

// shortfallIn returns the most by which a model or class misses its share of requests in time in some runs at rates, and
// its standard error. Of a plan for the most goodput, it is the part of the goodput stated that is missing.
func shortfallIn(plan *formats.Plan, rates []float64, runs *sim.Replications) (shortfall, standardError float64) {
	meanAndError := func(perRun []float64) (mean, standardError float64) {
		mean, deviation := stat.MeanStdDev(perRun, nil)
		return mean, stat.StdErr(deviation, float64(len(perRun)))
	}
	if stated := plan.Objective.Value; plan.Objective.Name == "goodput" {
		goodput, variance := 0.0, 0.0
		for i, rps := range rates {
			mean, meanError := meanAndError(runs.AttainmentPerRun(i))
			goodput, variance = goodput+rps*mean, variance+rps*rps*meanError*meanError
		}
		return 1 - goodput/stated, math.Sqrt(variance) / stated
	}
	shares := plan.AttainmentShares()
	shortfall = math.Inf(-1)
	for _, pooled := range plan.AttainmentGroups() {
		if mean, meanError := meanAndError(runs.AttainmentPerRun(pooled...)); shares[pooled[0]]-mean > shortfall {
			shortfall, standardError = shares[pooled[0]]-mean, meanError
		}
	}
	return shortfall, standardError
}
