package trials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/sim"
)

// MeasuredResult holds the accuracy and lateness of a plan in a simulation of measured rates.
type MeasuredResult struct {
	Tail                time.Duration // at the SLO's percentile, over all requests
	heldOutTail         time.Duration // the same of streams that bring held-out samples; 0 if none did
	LateShare, Accuracy float64       // share of late requests; accuracy of the gears in use over all samples, not only those that came
	GearShares          []float64     // by gear: share of the requests that it served
}

// TakeWorst raises tails and late share to those of another stream.
func (r *MeasuredResult) TakeWorst(other *MeasuredResult) {
	r.Tail, r.heldOutTail, r.LateShare = max(r.Tail, other.Tail), max(r.heldOutTail, other.heldOutTail), max(r.LateShare, other.LateShare)
}

// KeepsSLO reports whether all requests together keep the SLO.
func (r MeasuredResult) KeepsSLO(p *cascades.Problem) bool {
	return max(r.Tail, r.heldOutTail) <= p.SLO && r.LateShare <= 1-p.Percentile
}

// AsTrial returns the result as the trial of every range.
func (r *MeasuredResult) AsTrial() Trial {
	return Trial{Latency: r.Tail, HeldOutLatency: r.heldOutTail, Stable: true, Passed: true, LateShare: r.LateShare}
}

// gearTables returns the tables, as the run-time policy reads them, of a plan's gears: one cascade with its split for
// each range of rates, in their order.
func (b *Simulator) gearTables(gears []PlannedGear) *policy.Tables {
	p := b.Problem
	list := make([]gear.Gear, len(gears))
	for r := range gears {
		g := &gears[r]
		list[r] = g.Cascade.Gear(p.RangeEdges[r], g.MinQueue, g.Shares)
	}
	return b.TablesWith(p.RangeEdges[len(p.RangeEdges)-1], list...)
}

// EvenStream is the stream with evenly spaced requests.
const EvenStream = -1

// measuredStreamName names the random numbers of a stream at the measured rates.
func measuredStreamName(stream int) string {
	if stream == 0 {
		return "gear/measured"
	}
	return fmt.Sprintf("gear/measured/%d", stream)
}

// streamSamples returns the samples that the requests of a stream (the random arrivals of a run) bring: the planning
// samples or, in every second random stream, the held-out ones, which planning did not see, if there are any.
func (b *Simulator) streamSamples(stream int) *cascades.Samples {
	if p := b.Problem; p.HeldOutSamples.IsPresent() && stream != EvenStream && stream%2 == 1 {
		return p.HeldOutSamples
	}
	return b.Problem.PlanningSamples
}

// RunMeasured simulates gears, one per range of rates, with the real policy on the measured rates with the arrivals of
// a stream: Poisson, or evenly spaced for EvenStream. Requests bring the samples of the stream, planning or held-out
// ones (streamSamples), and the result has the tail latency under the name of these. Once more than a share
// maxLateShare of the requests are late (past the SLO), the run ends, and the result only has a late share of 1. With a
// maxLateShare of 1 it never ends early. It counts the run and its requests.
func (b *Simulator) RunMeasured(ctx context.Context, gears []PlannedGear, stream int, maxLateShare float64) (MeasuredResult, error) {
	// Tables of the gears. They have the planning samples; for a stream of held-out ones a copy has these. gearTables keeps the
	// planning samples, on which the accuracy is computed below.
	*b.RunCount++
	tables := b.gearTables(gears)
	gearTables, samples := gear.TablesOf(tables), b.streamSamples(stream)
	bringsHeldOut := samples != b.Problem.PlanningSamples
	if bringsHeldOut {
		withSamples := *gearTables
		withSamples.Records, tables.KindTables = b.pipelineRecords(samples), &withSamples
	}
	// Refusals would hide lateness, so the policy makes none.
	gearPolicy, err := gear.New(tables, gear.OptionsWithoutRefusals(tables))
	if err != nil {
		return MeasuredResult{}, err
	}

	// Arrivals.
	requests := lists.Total(b.Problem.MeasuredRates) // each rate is the number of requests of a second
	latencies, lateCount, maxLateCount := make([]time.Duration, 0, int(requests)+1), 0, int(maxLateShare*requests)
	source := arrivals.Evenly(b.Problem.MeasuredRates)
	if stream != EvenStream {
		source = arrivals.PoissonOf(b.Problem.MeasuredRates, seeded.New(b.seed, measuredStreamName(stream)))
	}

	// Run, and count late requests.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := sim.Run(ctx, sim.Config{Tables: tables, Policy: gearPolicy, Source: source, Egress: b.Problem.RequestOverhead, FrontEnd: b.Problem.FrontEndTime, NoReport: true, OnCompleted: func(arrivedAt, answeredAt time.Duration) {
		latencies = append(latencies, answeredAt-arrivedAt)
		if answeredAt-arrivedAt > b.Problem.SLO {
			if lateCount++; lateCount > maxLateCount {
				cancel(errTooManyLate)
			}
		}
	}})
	b.MeasuredRequests += len(latencies)
	if err != nil && errors.Is(context.Cause(ctx), errTooManyLate) {
		return MeasuredResult{LateShare: 1}, nil
	}
	if errors.Is(err, context.Canceled) { // the caller has ended the search
		return MeasuredResult{}, err
	}
	if err != nil {
		return MeasuredResult{}, fmt.Errorf("running the plan on the measured rates: %w", err)
	}

	// Collect the result.
	result := MeasuredResult{LateShare: float64(lateCount) / float64(max(1, len(latencies))), Accuracy: res.Gears.ExpectedAccuracy(gearTables), GearShares: res.Gears.GearShares()}
	tail := report.PercentileReordering(latencies, b.Problem.Percentile)
	if bringsHeldOut {
		result.heldOutTail = tail
	} else {
		result.Tail = tail
	}
	return result, nil
}

// RunStreams simulates gears on the first streamCount random streams of arrivals at the measured rates, each of which
// must keep the SLO. A stream that misses the SLO is the last. Streams end early once more of their requests are late
// than the percentile allows. Only for the first the caller gives that share, maxLateShare: with 1 it runs to its end,
// so that the result has figures even if it misses the SLO. Tail latency and late share of the result are the worst of
// all streams; accuracy and the shares of the gears are means of the first and of those after it that keep the SLO.
func (b *Simulator) RunStreams(ctx context.Context, gears []PlannedGear, streamCount int, maxLateShare float64) (MeasuredResult, error) {
	worst, err := b.RunMeasured(ctx, gears, 0, maxLateShare)
	averaged := []MeasuredResult{worst}
	for k := 1; err == nil && k < streamCount && worst.KeepsSLO(b.Problem); k++ {
		var result MeasuredResult
		result, err = b.RunMeasured(ctx, gears, k, 1-b.Problem.Percentile)
		worst.TakeWorst(&result) // with an error the result is empty, and changes nothing
		if err == nil && result.KeepsSLO(b.Problem) {
			averaged = append(averaged, result)
		}
	}
	if err != nil {
		return MeasuredResult{}, err
	}
	worst.Accuracy, worst.GearShares = MeanOfStreams(averaged)
	return worst, nil
}

// MeanOfStreams returns the means, over the results of at least one simulated stream, of the accuracy and, by gear, of
// the share of the requests that the gear served.
func MeanOfStreams(list []MeasuredResult) (accuracy float64, gearShares []float64) {
	gearShares = make([]float64, len(list[0].GearShares))
	for i := range list {
		accuracy += list[i].Accuracy / float64(len(list))
		for r := range gearShares {
			gearShares[r] += list[i].GearShares[r] / float64(len(list))
		}
	}
	return accuracy, gearShares
}

// AdoptMeasured makes a plan state what streams at the measured rates showed: weights are the shares of the requests
// that each range's gear served, accuracy is the mean by these, and the late share of every range is that of all
// requests, as ranges share the late ones. The plan's problem becomes a copy of p with these weights.
func (plan *Plan) AdoptMeasured(p *cascades.Problem, measured *MeasuredResult) {
	problem := *p
	problem.RangeWeights = cascades.Normalise(slices.Clone(measured.GearShares))
	plan.Problem, plan.Gears, plan.TailLatency, plan.Accuracy = &problem, slices.Clone(plan.Gears), measured.Tail, 0
	for r := range plan.Gears {
		g := &plan.Gears[r]
		g.LateShare, g.Trial = measured.LateShare, measured.AsTrial()
		plan.Accuracy += problem.RangeWeights[r] * g.Accuracy
	}
	plan.MeasuredAccuracy = plan.Accuracy
}

// StreamCount returns the number of random streams at the measured rates that must keep the SLO, as one alone may be
// lucky. The more requests a stream has, the fewer streams are needed. If measured rates are not simulated, it is 1.
func StreamCount(p *cascades.Problem) int {
	if !p.SimulatesMeasured() {
		return 1
	}
	return max(1, min(maxMeasuredStreams, int(maxStreamedRequests/lists.Total(p.MeasuredRates))))
}

// Limits on the streams at measured rates, and on their requests together.
const (
	maxMeasuredStreams  = 8
	maxStreamedRequests = 10_000_000
)
