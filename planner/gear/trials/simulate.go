package trials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/sim"
)

// Simulator simulates gears on one placement with the real policy.
type Simulator struct {
	Problem  *cascades.Problem
	tables   policy.Tables // of the placement, without gears
	MinQueue int           // of first models, in trials
	seed     uint64
	RunCount *int // number of simulated runs, of all placements of a search

	MeasuredRequests int // number of requests simulated at measured rates
	TrialRequests    int // number of requests simulated at constant rates

	pipelines [][]int32 // by model

	shuffledSamples map[*cascades.Samples][]gear.SampleRecords // by stream: the samples in the stream's order
	latencies       []time.Duration                            // of the last run; its memory is used again
}

// NewSimulator returns a simulator for a placement.
func NewSimulator(p *cascades.Problem, configs []planspace.Config, chains []planspace.PlacedChain, seed uint64) *Simulator {
	simulator := &Simulator{Problem: p, seed: seed, MinQueue: 1, RunCount: new(int), shuffledSamples: map[*cascades.Samples][]gear.SampleRecords{}}
	simulator.tables, simulator.pipelines = runTimeTables(p, configs, chains)
	return simulator
}

// errTooManyLate is the cause with which a run is cancelled early.
var errTooManyLate = errors.New("more requests are late than the percentile allows")

// trialRun is one run of a cascade at a constant rate.
type trialRun struct {
	cascade      *cascades.Cascade
	minQueue     int
	shares       [][]float64       // split, by model and replica
	rate         float64           // requests per second
	length       time.Duration     // simulated time
	latencyLimit time.Duration     // a request that takes longer is late
	maxLateShare float64           // share of late requests at which the run ends; 0 means what the percentile allows
	stream       int               // number of the random arrivals
	samples      *cascades.Samples // samples that requests bring; nil means the planning samples
	blockLength  time.Duration     // length of a block; 0 means that none are recorded
}

// runResult holds the figures of one run of a trial.
type runResult struct {
	tail          time.Duration // latency at the percentile, without the first quarter
	stoppedEarly  bool          // too many requests were late, and nothing else is known
	lateShare     float64       // share of the requests past the limit
	latencyGrowth time.Duration // of the mean latency, from the second quarter to the last
	blocks        []runBlock    // results by block, in order of time
}

// simulateRun simulates one gear (a cascade with its split) at a constant rate with random arrivals, by the real
// policy, and returns the share of late requests, the tail latency, how the mean latency grew, and results by block of
// time if the trial asks for blocks. Once too many requests are late, the recorder cancels the run, and the result says
// only that. It counts the run and its requests, and keeps the memory of the latencies for the next run.
func (b *Simulator) simulateRun(ctx context.Context, trial *trialRun) (runResult, error) {
	*b.RunCount++ // all placements of a search share this counter
	p, samples := b.Problem, cmp.Or(trial.samples, b.Problem.PlanningSamples)

	// Tables, policy and arrivals. Refusals would hide lateness, so the policy makes none.
	tables := b.TablesWith(trial.rate, trial.cascade.Gear(trial.rate, trial.minQueue, trial.shares))
	gear.TablesOf(tables).Records = b.shuffledRecords(samples, trial.stream)
	gearPolicy, err := gear.New(tables, gear.OptionsWithoutRefusals(tables))
	if err != nil {
		return runResult{}, err
	}
	source, err := arrivals.Process(&formats.Arrivals{Process: "poisson"}, seeded.New(b.seed, b.streamNameOf(samples, trial.stream)), 0, trial.rate, trial.length)
	if err != nil {
		return runResult{}, fmt.Errorf("trying a gear: %w", err)
	}

	// The recorder ends the run once too many requests are late.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	expectedRequests := trial.rate * trial.length.Seconds()
	maxLateShare := cmp.Or(trial.maxLateShare, 1-p.Percentile)
	recorder := latencyRecorder{length: trial.length, limit: trial.latencyLimit, cancel: cancel, maxLateCount: int(maxLateShare * expectedRequests), blockLength: trial.blockLength}
	if trial.blockLength > 0 {
		recorder.blockLatencies = make([][]time.Duration, trial.length/trial.blockLength)
		for i := range recorder.blockLatencies {
			recorder.blockLatencies[i] = make([]time.Duration, 0, int(1.2*trial.rate*trial.blockLength.Seconds()))
		}
	}
	recorder.latencies = slices.Grow(b.latencies[:0], int(1.1*expectedRequests))
	var service sim.Service // nil means the times of the tables
	if p.Drift > 0 {
		service = sim.SlowedService(sim.ExactService(tables), p.Drift)
	}
	_, err = sim.Run(ctx, sim.Config{Tables: tables, Service: service, Policy: gearPolicy, Source: source, Duration: trial.length, Egress: p.RequestOverhead, FrontEnd: p.FrontEndTime, OnCompleted: recorder.addLatency, NoReport: true})

	// Collect the result. Requests are counted by quarter of the run in which they arrived.
	b.latencies = recorder.latencies
	b.TrialRequests += lists.Sum(len(recorder.quarters), func(q int) int { return recorder.quarters[q].n })
	result := runResult{}
	if err != nil {
		if errors.Is(context.Cause(ctx), errTooManyLate) {
			result.stoppedEarly = true
			return result, nil
		}
		return runResult{}, fmt.Errorf("trying a gear: %w", err)
	}
	result.lateShare = shareAbove(recorder.latencies, trial.latencyLimit)
	for _, latencies := range recorder.blockLatencies {
		result.blocks = append(result.blocks, runBlock{shareAbove(latencies, trial.latencyLimit), report.PercentileReordering(latencies, p.Percentile), meanLatency(latencies)})
	}
	result.tail = report.PercentileReordering(recorder.latencies, p.Percentile)
	const secondQuarter, lastQuarter = 1, 3
	result.latencyGrowth = recorder.quarterMean(lastQuarter) - recorder.quarterMean(secondQuarter)
	if recorder.quarters[lastQuarter].n == 0 {
		// Without a request in the last quarter the growth is not known. Suppose that it is as large as the mean of the second.
		result.latencyGrowth = recorder.quarterMean(secondQuarter)
	}
	return result, nil
}

// shareAbove returns the share of latencies above a limit.
func shareAbove(list []time.Duration, limit time.Duration) float64 {
	aboveCount := lists.Count(len(list), func(i int) bool { return list[i] > limit })
	return float64(aboveCount) / float64(max(1, len(list)))
}

// meanLatency returns the mean of latencies, or 0 if there are none.
func meanLatency(list []time.Duration) time.Duration {
	total := lists.Total(list)
	return total / time.Duration(max(1, len(list)))
}

// TablesWith returns the run-time tables of the placement with some gears, for rates up to a peak in requests per
// second. Where stages of the given gears have the index of a model, those of the tables have the model's pipelines:
// the first one, and a list of the others. The simulator's own tables and the given gears are not changed.
func (b *Simulator) TablesWith(peak float64, gears ...gear.Gear) *policy.Tables {
	tables := b.tables
	tables.Models = slices.Clone(tables.Models)
	tables.Models[0].RPS = peak
	gears = slices.Clone(gears)
	for r := range gears {
		g := &gears[r]
		g.Stages = slices.Clone(g.Stages)
		for k := range g.Stages {
			pipelines := b.pipelines[g.Stages[k].Pipeline]
			g.Stages[k].Pipeline, g.Stages[k].OtherPipelines = pipelines[0], pipelines[1:]
		}
	}
	tables.KindTables = &gear.Tables{MaxQPS: peak, Gears: gears, Records: b.pipelineRecords(b.Problem.PlanningSamples)}
	return &tables
}

// pipelineRecords returns, for the run-time tables, the certainty levels and correctness of every pipeline's answers to
// samples. A model has a pipeline for each kind of devices that holds it and for each of its chains; all give the
// model's answers.
func (b *Simulator) pipelineRecords(s *cascades.Samples) gear.SampleRecords {
	records := gear.SampleRecords{Samples: s.N}
	for m, pipelines := range b.pipelines {
		for range pipelines {
			records.Levels, records.Correct = append(records.Levels, s.Levels[m]), append(records.Correct, s.Correct[m])
		}
	}
	return records
}

// streamNameOf names the random numbers of a stream whose requests bring the given samples.
func (b *Simulator) streamNameOf(s *cascades.Samples, stream int) string {
	if s == b.Problem.PlanningSamples {
		return trialStreamName(stream)
	}
	return trialStreamName(stream) + "/held-out"
}

// shuffledRecords returns the answers of all pipelines to samples in the random order in which a stream's requests
// bring these. The order depends on seed and stream only, so it is the same in every run. Orders are kept for later
// runs, those of smaller stream numbers included.
func (b *Simulator) shuffledRecords(s *cascades.Samples, stream int) gear.SampleRecords {
	list := b.shuffledSamples[s]
	for n := len(list); n <= stream; n++ {
		records := b.pipelineRecords(s)
		list = append(list, shuffleRecords(&records, seeded.New(b.seed, b.streamNameOf(s, n)+"/samples")))
	}
	b.shuffledSamples[s] = list
	return list[stream]
}

// shuffleRecords returns a copy of records in which the samples are in random order, the same for all pipelines.
func shuffleRecords(r *gear.SampleRecords, rng *rand.Rand) gear.SampleRecords {
	order := rng.Perm(r.Samples)
	shuffled := gear.SampleRecords{Samples: r.Samples}
	for m := range r.Levels {
		levels, correct := make([]uint8, len(order)), make([]bool, len(order))
		for i, k := range order {
			levels[i], correct[i] = r.Levels[m][k], r.Correct[m][k]
		}
		shuffled.Levels, shuffled.Correct = append(shuffled.Levels, levels), append(shuffled.Correct, correct)
	}
	return shuffled
}

// latencyRecorder collects the latencies of a run.
type latencyRecorder struct {
	length         time.Duration
	limit          time.Duration
	cancel         context.CancelCauseFunc
	latencies      []time.Duration // of requests that arrived after the first quarter
	lateCount      int             // number of requests past the limit
	maxLateCount   int             // number at which the run is cancelled
	blockLength    time.Duration
	blockLatencies [][]time.Duration // latencies by block of arrival
	quarters       [4]struct {
		n   int
		sum time.Duration
	}
}

// addLatency records an answered request of a run; the simulator calls it when the answer leaves. In the first quarter
// of the run queues fill. So requests that arrive then are left out of the latencies, from which late share and tail
// are computed. They still count in the mean latency of their quarter and in their block, and for the early end of the
// run, which counts all late requests: it cancels the run once they are more than maxLateCount + 1.
func (w *latencyRecorder) addLatency(arrivedAt, answeredAt time.Duration) {
	latency := answeredAt - arrivedAt
	quarter := min(3, int(4*arrivedAt/w.length))
	w.quarters[quarter].n++
	w.quarters[quarter].sum += latency
	if w.blockLength > 0 {
		block := min(int(arrivedAt/w.blockLength), len(w.blockLatencies)-1)
		w.blockLatencies[block] = append(w.blockLatencies[block], latency)
	}
	if latency > w.limit {
		if w.lateCount++; w.lateCount > w.maxLateCount+1 {
			w.cancel(errTooManyLate)
		}
	}
	if quarter > 0 {
		w.latencies = append(w.latencies, latency)
	}
}

// quarterMean returns the mean latency of a quarter of the run, or 0 if it has no request.
func (w *latencyRecorder) quarterMean(quarter int) time.Duration {
	q := &w.quarters[quarter]
	return q.sum / time.Duration(max(1, q.n))
}
