package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
)

// Service gives the times that work takes. Its methods are called when the work starts,
// in the order of the run.
type Service interface {
	// RunTime returns the time of a batch at a stage (an index into Tables.Stages).
	RunTime(stage, batch int32) time.Duration
	// TransferTime returns the time of the transfer of a batch into a stage. The tables
	// give the planned time.
	TransferTime(stage, batch int32, plannedTime time.Duration) time.Duration
}

// TickObserver is a Service that is told when work starts: ObserveTime is called before
// RunTime with the time since the first request.
type TickObserver interface {
	Service
	ObserveTime(elapsed time.Duration)
}

// IdleObserver is a Service that is told how long a device was idle: ObserveIdle is called
// before RunTime with that time.
type IdleObserver interface {
	Service
	ObserveIdle(idleTime time.Duration)
}

// ServingTimes is a Service that has times which only serving shows.
type ServingTimes interface {
	Service
	// ReportDelay returns the time from the end of the latest run until the policy hears of it.
	// What ends with the run ends at the later time. The device goes on meanwhile.
	ReportDelay() time.Duration
	// LoadTime returns how long a network takes to load. If it returns false, the planned time holds.
	LoadTime(network int32) (time.Duration, bool)
}

// ExactService returns a service with the times of the tables, or those of serving if the tables
// have them. There is no jitter.
func ExactService(t *policy.Tables) Service { return &idleAwareService{exactService: exactService{t}} }

type exactService struct{ t *policy.Tables }

// RunTime returns how long a batch of this size runs at a stage: the mean of the plan's tables or, without means,
// their planned time. Index 0 of the tables is for batch size 1.
func (e exactService) RunTime(stage, batch int32) time.Duration {
	s := &e.t.Stages[stage]
	if s.Mean != nil {
		return s.Mean[batch-1]
	}
	return s.Infer[batch-1]
}

func (e exactService) TransferTime(_, _ int32, plannedTime time.Duration) time.Duration {
	return plannedTime
}

// idleAwareService adds the time that a run takes longer after its device was idle. It grows
// linearly up to formats.IdleGap.
type idleAwareService struct {
	exactService
	idleTime time.Duration
}

// ObserveIdle implements IdleObserver.
func (s *idleAwareService) ObserveIdle(idleTime time.Duration) { s.idleTime = idleTime }

// RunTime returns the exact time and what a device takes longer because it was idle before. The penalty grows
// linearly with the idle time, up to the full penalty after formats.IdleGap.
func (s *idleAwareService) RunTime(stage, batch int32) time.Duration {
	runTime, extra := s.exactService.RunTime(stage, batch), s.t.Stages[stage].IdlePenalty
	if s.idleTime < formats.IdleGap {
		extra = time.Duration(float64(extra) * float64(s.idleTime) / float64(formats.IdleGap))
	}
	return runTime + extra
}

// Distribution is a distribution of service times around those of the tables.
type Distribution uint8

// Distributions with the tables' time as mean and a coefficient of variation.
const (
	Lognormal   Distribution = iota
	Normal                   // cut off below a hundredth of the mean
	Exponential              // the coefficient of variation is 1
)

// JitterService returns a service that draws run times around those of the tables, from the
// stream "service" of a seed. Transfers take their planned time.
func JitterService(t *policy.Tables, dist Distribution, cv float64, seed uint64) Service {
	sigma := math.Sqrt(math.Log1p(cv * cv))
	return &jitterService{exactService: exactService{t}, dist: dist, cv: cv, sigma: sigma, rng: seeded.New(seed, "service")}
}

type jitterService struct {
	exactService
	dist      Distribution
	cv, sigma float64
	rng       *rand.Rand
}

// RunTime returns the exact time, multiplied by a random factor with mean 1 of the chosen distribution, and at
// least 1 ns. A normal factor is at least 0.01, because it could be negative.
func (j *jitterService) RunTime(stage, batch int32) time.Duration {
	mean := j.exactService.RunTime(stage, batch)
	f := 1.0
	switch j.dist {
	case Lognormal:
		f = math.Exp(j.sigma*j.rng.NormFloat64() - j.sigma*j.sigma/2)
	case Normal:
		f = max(0.01, 1+j.cv*j.rng.NormFloat64())
	case Exponential:
		f = j.rng.ExpFloat64()
	}
	return max(1, time.Duration(math.Round(f*float64(mean))))
}

// Samples holds recorded service times of a real run: Runs[stage][batch-1] and
// Transfers[stage][batch-1], each in the order of recording. For a batch without samples
// those of the nearest recorded batch of the stage are scaled by the ratio of the tables'
// times. A stage without samples takes the tables' time.
type Samples struct {
	Runs      [][][]time.Duration
	Transfers [][][]time.Duration
	// Starts[stage][batch-1] holds when the runs began, in rising order, counted from the
	// first request. It may be nil.
	Starts [][][]time.Duration
	// ReportDelays[stage][batch-1] holds for each run the time from its end until the policy
	// heard of it. It may be nil.
	ReportDelays [][][]time.Duration
	// Loads[network] holds the times of loads while serving, LoadStarts when they began, as Starts does.
	Loads, LoadStarts [][]time.Duration
}

// RecordedService returns a service that draws from recorded times: in the order of recording,
// from the start again when they run out, or, with draw, at random from the stream
// "service" of a seed. Without draw and with recorded starts, a run takes the time of the
// recorded run of its batch that began nearest to it: a machine that was slow for a while
// is slow for the same requests.
func RecordedService(t *policy.Tables, s Samples, draw bool, seed uint64) (Service, error) {
	e := &recordedService{exactService: exactService{t}}
	if draw {
		e.rng = seeded.New(seed, "service")
	}
	var err error
	if e.runSamples, err = e.samplesByBatch("runs", s.Runs, s.Starts, func(stage int) []time.Duration { return t.Stages[stage].Infer }); err != nil {
		return nil, err
	}
	if err := e.addReportDelays(s); err != nil {
		return nil, err
	}
	if e.loadSamples, err = e.samplesOfLoads(s); err != nil {
		return nil, err
	}
	if e.transferSamples, err = e.samplesByBatch("transfers", s.Transfers, nil, func(stage int) []time.Duration { return t.Stages[stage].Xfer }); err != nil {
		return nil, err
	}
	return e, nil
}

// recordedService is the service of RecordedService.
type recordedService struct {
	exactService
	rng *rand.Rand // nil if samples are taken in order or by their starts

	// By stage and batch, less one.
	runSamples, transferSamples [][]batchSamples
	loadSamples                 []batchSamples // by network
	elapsed                     time.Duration  // since the first request
	reportDelay                 time.Duration  // of the run that was taken last
}

// ObserveTime implements TickObserver.
func (e *recordedService) ObserveTime(elapsed time.Duration) { e.elapsed = elapsed }

// batchSamples holds the samples of one stage and batch.
type batchSamples struct {
	times        []time.Duration
	starts       []time.Duration // nil if they were not recorded
	reportDelays []time.Duration // nil if the policy heard of runs at once
	scale        float64         // factor on the times
	sourceBatch  int             // the batch that the samples come from, less one
	nextIndex    *int            // the next sample in order; batches that borrow the same samples share it
}

// samplesByBatch checks recorded times (by stage, batch and run) and returns the samples of every stage and batch.
// table returns the planned times of a stage, by which samples of another batch size are scaled. Negative times and
// wrong starts are errors.
func (e *recordedService) samplesByBatch(sampleKind string, recordedTimes, starts [][][]time.Duration, table func(int) []time.Duration) ([][]batchSamples, error) {
	byStage := make([][]batchSamples, len(e.t.Stages))
	if len(recordedTimes) > len(byStage) {
		return nil, fmt.Errorf("recorded %s: %d stages, the plan has %d", sampleKind, len(recordedTimes), len(byStage))
	}
	for stage := range recordedTimes {
		// No recorded time may be negative.
		for b, times := range recordedTimes[stage] {
			for _, duration := range times {
				if duration < 0 {
					return nil, fmt.Errorf("recorded %s of stage %d at batch %d: %v, expected at least 0", sampleKind, stage, b+1, duration)
				}
			}
		}

		// Batches without samples borrow those of the nearest batch.
		byStage[stage] = nearestSamples(recordedTimes[stage], table(stage))
		if starts == nil {
			continue
		}
		if err := checkStarts(recordedTimes[stage], starts, stage); err != nil {
			return nil, err
		}
		for b := range byStage[stage] {
			if s := &byStage[stage][b]; s.times != nil {
				s.starts = starts[stage][s.sourceBatch]
			}
		}
	}
	return byStage, nil
}

// checkStarts returns an error unless the recorded runs of a stage have one start each, in rising order. starts is
// by stage, batch and run; runs has the times of the stage by batch.
func checkStarts(runs [][]time.Duration, starts [][][]time.Duration, stage int) error {
	if stage >= len(starts) || len(starts[stage]) != len(runs) {
		return fmt.Errorf("recorded starts of stage %d: not as many batches as its times", stage)
	}
	for b, list := range starts[stage] {
		if len(list) != len(runs[b]) {
			return fmt.Errorf("recorded starts of stage %d at batch %d: %d, expected one per time, %d", stage, b+1, len(list), len(runs[b]))
		}
		if !slices.IsSorted(list) {
			return fmt.Errorf("recorded starts of stage %d at batch %d: not in order", stage, b+1)
		}
	}
	return nil
}

// addReportDelays gives the samples of runs their recorded report delays (by how much later than its end the policy
// heard of a run). It returns an error if their number is not that of the runs, or one is negative.
func (e *recordedService) addReportDelays(s Samples) error {
	if s.ReportDelays == nil {
		return nil
	}
	for stage := range s.Runs {
		if stage >= len(s.ReportDelays) || len(s.ReportDelays[stage]) != len(s.Runs[stage]) {
			return fmt.Errorf("what the policy was told of stage %d: not as many batches as its times", stage)
		}
		for b, list := range s.ReportDelays[stage] {
			if len(list) != len(s.Runs[stage][b]) || slices.ContainsFunc(list, isNegative) {
				return fmt.Errorf("what the policy was told of stage %d at batch %d: %d times, expected one of at least 0 per run, %d", stage, b+1, len(list), len(s.Runs[stage][b]))
			}
		}
		for b := range e.runSamples[stage] {
			if batch := &e.runSamples[stage][b]; batch.times != nil {
				batch.reportDelays = s.ReportDelays[stage][batch.sourceBatch]
			}
		}
	}
	return nil
}

func isNegative(d time.Duration) bool { return d < 0 }

// samplesOfLoads checks the recorded times of loads and returns their samples by network. It returns an error for
// negative times, or starts that are missing or not in order. A network without recorded loads has no samples, and
// takes its planned time.
func (e *recordedService) samplesOfLoads(s Samples) ([]batchSamples, error) {
	if len(s.Loads) > len(e.t.Networks) {
		return nil, fmt.Errorf("recorded loads: %d networks, the plan has %d", len(s.Loads), len(e.t.Networks))
	}
	byNetwork := make([]batchSamples, len(s.Loads))
	for n, list := range s.Loads {
		if slices.ContainsFunc(list, isNegative) {
			return nil, fmt.Errorf("recorded loads of network %d: %v, expected at least 0", n, slices.Min(list))
		}
		if len(list) == 0 {
			continue
		}
		byNetwork[n] = batchSamples{times: list, scale: 1, nextIndex: new(int)}
		if s.LoadStarts == nil {
			continue
		}
		if n >= len(s.LoadStarts) || len(s.LoadStarts[n]) != len(list) || !slices.IsSorted(s.LoadStarts[n]) {
			return nil, fmt.Errorf("recorded starts of loads of network %d: expected one per load, in order", n)
		}
		byNetwork[n].starts = s.LoadStarts[n]
	}
	return byNetwork, nil
}

// nearestSamples returns the samples of every batch of a table: its own, or those of the
// nearest batch that has some. Of two batches equally near it takes the smaller one.
func nearestSamples(recordedTimes [][]time.Duration, table []time.Duration) []batchSamples {
	byBatch := make([]batchSamples, len(table))
	nextIndex := make([]int, len(table))
	for b := range table {
		for distance := 0; distance < len(table) && byBatch[b].times == nil; distance++ {
			for _, candidate := range [2]int{b - distance, b + distance} {
				if candidate < 0 || candidate >= min(len(recordedTimes), len(table)) || len(recordedTimes[candidate]) == 0 || byBatch[b].times != nil {
					continue
				}
				byBatch[b] = batchSamples{times: recordedTimes[candidate], scale: 1, sourceBatch: candidate, nextIndex: &nextIndex[candidate]}
				if candidate != b && table[candidate] > 0 {
					byBatch[b].scale = float64(table[b]) / float64(table[candidate])
				}
			}
		}
	}
	return byBatch
}

// sampleTime returns the time of the next sample of a stage and batch, and sets the report delay that was recorded
// with it. Samples of another batch size are scaled by the planned times. If there is none, it returns the planned
// time.
func (e *recordedService) sampleTime(lists [][]batchSamples, stage, batch int32, plannedTime time.Duration) time.Duration {
	if lists[stage] == nil || lists[stage][batch-1].times == nil {
		return plannedTime
	}
	s := &lists[stage][batch-1]
	i := e.sampleIndex(s)
	if s.reportDelays != nil {
		e.reportDelay = s.reportDelays[i]
	}
	duration := s.times[i]
	if s.scale != 1 {
		duration = time.Duration(math.Round(s.scale * float64(duration)))
	}
	return duration
}

// sampleIndex returns the index of the sample to take: a random one, the one recorded nearest to this time of the
// run, or the next in order.
func (e *recordedService) sampleIndex(s *batchSamples) int {
	switch {
	case e.rng != nil:
		return e.rng.IntN(len(s.times))
	case s.starts != nil:
		return nearestIndex(s.starts, e.elapsed)
	}
	i := *s.nextIndex
	*s.nextIndex = (i + 1) % len(s.times)
	return i
}

func (e *recordedService) RunTime(stage, batch int32) time.Duration {
	e.reportDelay = 0
	return max(1, e.sampleTime(e.runSamples, stage, batch, e.exactService.RunTime(stage, batch)))
}

// ReportDelay implements ServingTimes.
func (e *recordedService) ReportDelay() time.Duration { return e.reportDelay }

// LoadTime returns the time of the next recorded load of a network, and false if none was recorded. It implements
// ServingTimes.
func (e *recordedService) LoadTime(network int32) (time.Duration, bool) {
	if int(network) >= len(e.loadSamples) || e.loadSamples[network].times == nil {
		return 0, false
	}
	s := &e.loadSamples[network]
	return s.times[e.sampleIndex(s)], true
}

func (e *recordedService) TransferTime(stage, batch int32, plannedTime time.Duration) time.Duration {
	return e.sampleTime(e.transferSamples, stage, batch, plannedTime)
}

// nearestIndex returns the index of the entry of a rising list that is nearest to target.
// Of two entries equally near it returns the later one.
func nearestIndex(list []time.Duration, target time.Duration) int {
	i, _ := slices.BinarySearch(list, target)
	if i == len(list) || i > 0 && target-list[i-1] < list[i]-target {
		i--
	}
	return i
}
