package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/policy/gear"
	"inferplan/sim"
	"inferplan/solver/knapsack"
)

// Parameters of plans whose SLO is over all requests.
const (
	spentShare     = .9  // part of the late share allowed by the percentile that is planned for
	lateUnit       = 1e4 // units of the late share in the knapsack
	lateStepFactor = .8  // factor on the late share if measured rates show more late requests than the ranges did
	maxLateSteps   = 8   // number of such steps
)

// gearChoices are the gears that every range may have, its own first. items[r][k] has what gear k of range r adds
// to the accuracy of all requests, as its value, and to their late share, as its weight.
type gearChoices struct {
	gears [][]PlannedGear
	items [][]knapsack.Choice
}

// addGear adds a gear to the choices of a range. weight is the range's share of the requests.
func (a *gearChoices) addGear(r int, g PlannedGear, weight float64) {
	g.LateShare = g.Trial.lateShare
	a.gears[r] = append(a.gears[r], g)
	a.items[r] = append(a.items[r], knapsack.Choice{Value: weight * g.Accuracy, Weight: weight * g.LateShare})
}

// allowLateRanges is for an SLO over all requests: it gives ranges more accurate gears that miss the SLO but
// are stable at the upper edge, as far as all requests together keep it. The choice is a knapsack, whose
// capacity is the share of late requests that the percentile allows. If rates were measured, the plan is
// simulated on them, and while more requests are late than the trials showed, the capacity is reduced. If it
// returns an error, every range still has its own gear.
func (plan *Outcome) allowLateRanges(ctx context.Context) error {
	p, b := plan.Problem, plan.placement.simulator
	choices, err := plan.listGearChoices(ctx)
	for maxLateShare := spentShare * (1 - p.Percentile); err == nil; maxLateShare *= lateStepFactor {
		// Choose gears for the capacity.
		picks := knapsack.BestChoices(choices.items, maxLateShare, lateUnit)
		if plan.chooseGears(choices, picks); !p.simulatesMeasured() || p.hasManyRequests() {
			return nil
		}

		// Simulate them on the measured rates.
		var measured measuredResult
		if measured, err = b.runStreams(ctx, plan.Gears, streamCount(p), 1); err != nil {
			break
		}
		plan.TailLatency, plan.measuredAccuracy = measured.tail, measured.accuracy
		if measured.keepsSLO(p) {
			plan.adoptMeasured(p, &measured)
			return nil
		}

		// Stop if no range has another gear.
		if unchanged := !slices.ContainsFunc(picks, func(k int) bool { return k > 0 }); unchanged {
			return nil
		}
		if maxLateShare < (1-p.Percentile)*math.Pow(lateStepFactor, maxLateSteps) {
			maxLateShare = 0
		}
	}
	plan.chooseGears(choices, make([]int, len(p.RangeEdges)))
	return err
}

// listGearChoices returns, for the knapsack of allowLateRanges, the gears that every range may have: its own,
// and more accurate cascades that are stable at its upper edge, with the share of requests that is then late.
// Each range has its own gear even if an error is returned.
func (plan *Outcome) listGearChoices(ctx context.Context) (*gearChoices, error) {
	p, b := plan.Problem, plan.placement.simulator
	choices := &gearChoices{make([][]PlannedGear, len(p.RangeEdges)), make([][]knapsack.Choice, len(p.RangeEdges))}
	for r := range p.RangeEdges {
		choices.addGear(r, plan.Gears[r], p.RangeWeights[r])
	}

	// Try the more accurate cascades of each range, until two are unstable.
	for r, edge := range p.RangeEdges {
		w := p.RangeWeights[r]
		candidates, err := plan.placement.layout.feasibleFront(ctx, edge, plan.Gears[r].Cascade.CorrectCount)
		if err != nil {
			return choices, err
		}
		if n := len(candidates); n == 0 || w*(plannedAccuracy(p, candidates[n-1].cascade)-plan.Gears[r].Accuracy) < minAccuracyGain/float64(len(p.RangeEdges)) {
			continue // no choice adds anything
		}
		for k, fails := 0, 0; k < len(candidates) && fails < 2; k++ {
			s := &candidates[k]
			t, err := b.tryWithLateShare(ctx, s, edge, min(1, (1-p.Percentile)/w))
			if err != nil {
				return choices, err
			}
			if !t.Stable {
				fails++
				continue
			}
			choices.addGear(r, newGear(p, s, edge, t), w)
		}
	}
	return choices, nil
}

// chooseGears gives every range one of its choices, by index, and adds up the plan's accuracy.
func (plan *Outcome) chooseGears(choices *gearChoices, picks []int) {
	plan.Accuracy, plan.TailLatency, plan.measuredAccuracy = 0, 0, 0
	for r, k := range picks {
		plan.Gears[r] = choices.gears[r][k]
		plan.Accuracy += choices.items[r][k].Value
	}
}

// measuredResult holds the accuracy and lateness of a plan in a simulation of measured rates.
type measuredResult struct {
	tail                time.Duration // at the SLO's percentile, over all requests
	heldOutTail         time.Duration // the same of streams that bring held-out samples; 0 if none did
	lateShare, accuracy float64       // share of late requests; accuracy of the gears in use over all samples, not only those that came
	gearShares          []float64     // by gear: share of the requests that it served
}

// takeWorst raises tails and late share to those of another stream.
func (r *measuredResult) takeWorst(other *measuredResult) {
	r.tail, r.heldOutTail, r.lateShare = max(r.tail, other.tail), max(r.heldOutTail, other.heldOutTail), max(r.lateShare, other.lateShare)
}

// streamSamples returns the samples that the requests of a stream (the random arrivals of a run) bring. Every
// second stream brings the held-out ones, which planning did not see, if there are any.
func (b *gearSimulator) streamSamples(stream int) *Samples {
	if p := b.problem; p.HeldOutSamples.isPresent() && stream != evenStream && stream%2 == 1 {
		return p.HeldOutSamples
	}
	return b.problem.PlanningSamples
}

// runMeasured simulates gears on the measured rates with the arrivals of a stream: Poisson, or evenly spaced for
// evenStream. Once more than maxLateShare of the requests are late, the run ends, and the result only has a late
// share of 1.
func (b *gearSimulator) runMeasured(ctx context.Context, gears []PlannedGear, stream int, maxLateShare float64) (measuredResult, error) {
	// Tables of the gears, with the samples of the stream.
	*b.runCount++
	t := b.gearTables(gears)
	gearTables, samples := gear.TablesOf(t), b.streamSamples(stream)
	if samples != b.problem.PlanningSamples {
		withSamples := *gearTables
		withSamples.Records, t.KindTables = b.pipelineRecords(samples), &withSamples
	}
	pol, err := gear.New(t, gear.OptionsWithoutRefusals(t))
	if err != nil {
		return measuredResult{}, err
	}

	// Arrivals.
	requests := sum(b.problem.MeasuredRates)
	latencies, lateCount, maxLateCount := make([]time.Duration, 0, int(requests)+1), 0, int(maxLateShare*requests)
	source := arrivals.Evenly(b.problem.MeasuredRates)
	if stream != evenStream {
		source = arrivals.PoissonOf(b.problem.MeasuredRates, seeded.New(b.seed, measuredStreamName(stream)))
	}

	// Run, and count late requests.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := sim.Run(ctx, sim.Config{Tables: t, Policy: pol, Source: source, Egress: b.problem.RequestOverhead, FrontEnd: b.problem.FrontEndTime, NoReport: true, OnCompleted: func(arrivedAt, answeredAt time.Duration) {
		latencies = append(latencies, answeredAt-arrivedAt)
		if answeredAt-arrivedAt > b.problem.SLO {
			if lateCount++; lateCount > maxLateCount {
				cancel(errTooManyLate)
			}
		}
	}})
	b.measuredRequests += len(latencies)
	if err != nil && errors.Is(context.Cause(ctx), errTooManyLate) {
		return measuredResult{lateShare: 1}, nil
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return measuredResult{}, fmt.Errorf("running the plan on the measured rates: %w", err)
	}
	if err != nil {
		return measuredResult{}, err
	}

	// Collect the result.
	result := measuredResult{lateShare: float64(lateCount) / float64(max(1, len(latencies))), accuracy: res.Gears.ExpectedAccuracy(gearTables), gearShares: res.Gears.GearShares()}
	if tail := report.PercentileReordering(latencies, b.problem.Percentile); samples == b.problem.PlanningSamples {
		result.tail = tail
	} else {
		result.heldOutTail = tail
	}
	return result, nil
}

// evenStream is the stream with evenly spaced requests.
const evenStream = -1

// measuredStreamName names the random numbers of a stream at the measured rates.
func measuredStreamName(stream int) string {
	if stream == 0 {
		return "gear/measured"
	}
	return fmt.Sprintf("gear/measured/%d", stream)
}

// runStreams simulates gears on several streams (random arrivals) at the measured rates, each of which must
// keep the SLO. The first stream ends once more than maxLateShare of its requests are late. A stream that
// misses the SLO is the last. Tail latency and late share of the result are the worst of all streams; accuracy
// and the shares of the gears are means of those that keep the SLO.
func (b *gearSimulator) runStreams(ctx context.Context, gears []PlannedGear, streamCount int, maxLateShare float64) (measuredResult, error) {
	worst, err := b.runMeasured(ctx, gears, 0, maxLateShare)
	keptSLO := []measuredResult{worst}
	for k := 1; err == nil && k < streamCount && worst.keepsSLO(b.problem); k++ {
		var result measuredResult
		result, err = b.runMeasured(ctx, gears, k, 1-b.problem.Percentile)
		if worst.takeWorst(&result); err == nil && result.keepsSLO(b.problem) {
			keptSLO = append(keptSLO, result)
		}
	}
	if err != nil {
		return measuredResult{}, err
	}
	worst.accuracy, worst.gearShares = meanOfStreams(keptSLO)
	return worst, nil
}

// meanOfStreams returns the means, over simulated streams, of the accuracy and of the shares of the requests
// that each gear served.
func meanOfStreams(list []measuredResult) (accuracy float64, gearShares []float64) {
	gearShares = make([]float64, len(list[0].gearShares))
	for i := range list {
		accuracy += list[i].accuracy / float64(len(list))
		for r := range gearShares {
			gearShares[r] += list[i].gearShares[r] / float64(len(list))
		}
	}
	return accuracy, gearShares
}

// adoptMeasured sets the plan's weights and accuracy to what streams at the measured rates showed, and the late
// share of every range to that of all requests, as ranges share the late ones.
func (plan *Outcome) adoptMeasured(p *Problem, measured *measuredResult) {
	problem := *p
	problem.RangeWeights = normalise(slices.Clone(measured.gearShares))
	plan.Problem, plan.Gears, plan.TailLatency, plan.Accuracy = &problem, slices.Clone(plan.Gears), measured.tail, 0
	for r := range plan.Gears {
		g := &plan.Gears[r]
		g.LateShare, g.Trial = measured.lateShare, measured.asTrial()
		plan.Accuracy += problem.RangeWeights[r] * g.Accuracy
	}
	plan.measuredAccuracy = plan.Accuracy
}

// asTrial returns the result as the trial of every range.
func (r *measuredResult) asTrial() Trial {
	return Trial{Latency: r.tail, HeldOutLatency: r.heldOutTail, Stable: true, Passed: true, lateShare: r.lateShare}
}

// keepsSLO reports whether all requests together keep the SLO.
func (r measuredResult) keepsSLO(p *Problem) bool {
	return max(r.tail, r.heldOutTail) <= p.SLO && r.lateShare <= 1-p.Percentile
}

// streamCount returns the number of streams at the measured rates that must keep the SLO. One alone may be lucky.
// The more requests a stream has, the fewer streams are needed.
func streamCount(p *Problem) int {
	if !p.simulatesMeasured() {
		return 1
	}
	return max(1, min(maxMeasuredStreams, int(maxStreamedRequests/sum(p.MeasuredRates))))
}

// Limits on the streams at measured rates, and on their requests together.
const (
	maxMeasuredStreams  = 8
	maxStreamedRequests = 10_000_000
)

// Measured rates of up to maxSimulatedRequests requests are simulated as a whole for the few tries of one cascade
// for all ranges. The many choices of gears per range are only simulated on up to manyRequests.
const (
	maxSimulatedRequests = 4_000_000
	manyRequests         = 400_000
)

// hasManyRequests reports whether a simulation of the measured rates takes long.
func (p *Problem) hasManyRequests() bool { return sum(p.MeasuredRates) > manyRequests }

// simulatesMeasured reports whether plans are simulated on the measured rates.
func (p *Problem) simulatesMeasured() bool {
	return p.OverRequests && sum(p.MeasuredRates) > 0 && sum(p.MeasuredRates) <= maxSimulatedRequests
}
