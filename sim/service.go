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
	// ObserveStart is called before RunTime and LoadTime, with the time since the first request and how long the
	// device was idle.
	ObserveStart(elapsed, idleTime time.Duration)
	// RunTime returns the time of a batch at a stage (an index into Tables.Stages).
	RunTime(stage, batch int32) time.Duration
	// ReportDelay returns the time from the end of the latest run until the policy hears of it.
	// What ends with the run ends at the later time. The device goes on meanwhile.
	ReportDelay() time.Duration
	// TransferTime returns the time of the transfer of a batch into a stage. The tables
	// give the planned time.
	TransferTime(stage, batch int32, plannedTime time.Duration) time.Duration
	// LoadTime returns how long a network takes to load. If it returns false, the planned time holds.
	LoadTime(network int32) (time.Duration, bool)
}

// ExactService returns a service with the times of the tables, or those of serving if the tables
// have them. There is no jitter.
func ExactService(tables *policy.Tables) Service {
	return &idleAwareService{exactService: exactService{tables}}
}

// exactService takes the times of the tables as they are. Other services embed it, and have those methods of their own
// in which they differ.
type exactService struct{ tables *policy.Tables }

// ObserveStart ignores when work starts, on which no exact time depends. It implements Service.
func (exactService) ObserveStart(_, _ time.Duration) {}

// ReportDelay returns 0: the policy hears of a run at its end. It implements Service.
func (exactService) ReportDelay() time.Duration { return 0 }

// LoadTime returns false, because loads take the planned time. It implements Service.
func (exactService) LoadTime(int32) (time.Duration, bool) { return 0, false }

// RunTime returns how long a batch of this size runs at a stage (an index in Tables.Stages): the mean of the plan's
// tables or, without means, their planned time. Index 0 of the tables is for batch size 1. It implements Service.
func (e exactService) RunTime(stage, batch int32) time.Duration {
	stageTable := &e.tables.Stages[stage]
	if stageTable.Mean != nil {
		return stageTable.Mean[batch-1]
	}
	return stageTable.Infer[batch-1]
}

// TransferTime returns the planned time of a transfer, which is how long it takes. It implements Service.
func (e exactService) TransferTime(_, _ int32, plannedTime time.Duration) time.Duration {
	return plannedTime
}

// idleAwareService adds to the exact time of a run what the run takes longer after its device was idle. That grows
// linearly up to formats.IdleGap.
type idleAwareService struct {
	exactService
	idleTime time.Duration
}

// ObserveStart notes for how long the device of the next run was idle. It implements Service.
func (s *idleAwareService) ObserveStart(_, idleTime time.Duration) { s.idleTime = idleTime }

// RunTime returns the exact time plus a penalty, because a device that was idle takes longer. The penalty grows linearly
// with the idle time, up to the full penalty of the stage (IdlePenalty) after formats.IdleGap. It implements Service.
func (stageTable *idleAwareService) RunTime(stage, batch int32) time.Duration {
	penalty := stageTable.tables.Stages[stage].IdlePenalty
	if stageTable.idleTime < formats.IdleGap {
		penalty = time.Duration(float64(penalty) * float64(stageTable.idleTime) / float64(formats.IdleGap))
	}
	return stageTable.exactService.RunTime(stage, batch) + penalty
}

// Distribution is a distribution of service times around those of the tables.
type Distribution uint8

// Distributions with the tables' time as mean and a coefficient of variation.
const (
	Lognormal   Distribution = iota // the logarithm is normal
	Normal                          // cut off below a hundredth of the mean
	Exponential                     // the coefficient of variation is 1
)

// JitterService returns a service that draws run times around those of the tables, from a distribution with a
// coefficient of variation, by the stream "service" of a seed. Transfers take their planned time.
func JitterService(tables *policy.Tables, distribution Distribution, variation float64, seed uint64) Service {
	sigma := math.Sqrt(math.Log1p(variation * variation)) // of the logarithm of a lognormal time with this variation
	return &jitterService{exactService: exactService{tables}, distribution: distribution, variation: variation, sigma: sigma, rng: seeded.New(seed, "service")}
}

// jitterService is the service of JitterService. variation is the coefficient of variation, sigma the standard
// deviation of the logarithm.
type jitterService struct {
	exactService
	distribution     Distribution
	variation, sigma float64
	rng              *rand.Rand
}

// RunTime returns the exact time, multiplied by a random factor with mean 1 of the chosen distribution, and at
// least 1 ns. A normal factor is at least 0.01, because it could be negative.
func (j *jitterService) RunTime(stage, batch int32) time.Duration {
	mean := j.exactService.RunTime(stage, batch)
	factor := 1.0
	switch j.distribution {
	case Lognormal:
		factor = math.Exp(j.sigma*j.rng.NormFloat64() - j.sigma*j.sigma/2) // the second term makes the mean 1
	case Normal:
		factor = max(0.01, 1+j.variation*j.rng.NormFloat64())
	case Exponential:
		factor = j.rng.ExpFloat64()
	}
	return max(1, time.Duration(math.Round(factor*float64(mean))))
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

// RecordedService returns a service (the source of the times that a simulated run takes) that takes recorded times: in
// the order of recording, from the start again when they run out, or, with draw, at random from the stream "service" of
// a seed. Without draw and with recorded starts, a run takes the time of that recorded run of its stage and batch size
// that began nearest to it: a machine that was slow for a while is slow for the same requests. The samples are of runs,
// of report delays (by how much later than its end the policy heard of a run), of loads and of transfers; errors name
// samples that do not fit the tables.
func RecordedService(tables *policy.Tables, samples Samples, draw bool, seed uint64) (Service, error) {
	service := &recordedService{exactService: exactService{tables}}
	if draw {
		service.rng = seeded.New(seed, "service")
	}

	// Check and enter the samples of runs, of report delays, of loads and of transfers.
	inferTimes := func(stage int) []time.Duration { return tables.Stages[stage].Infer }
	transferTimes := func(stage int) []time.Duration { return tables.Stages[stage].Xfer }
	var err error
	if service.runSamples, err = service.samplesByBatch("runs", samples.Runs, samples.Starts, inferTimes); err != nil {
		return nil, err
	}
	if err := service.addReportDelays(samples); err != nil {
		return nil, err
	}
	if service.loadSamples, err = service.samplesOfLoads(samples); err != nil {
		return nil, err
	}
	if service.transferSamples, err = service.samplesByBatch("transfers", samples.Transfers, nil, transferTimes); err != nil {
		return nil, err
	}
	return service, nil
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

// ObserveStart notes the time since the first request at which the next work starts. It implements Service.
func (e *recordedService) ObserveStart(elapsed, _ time.Duration) { e.elapsed = elapsed }

// batchSamples holds the samples of one stage and batch.
type batchSamples struct {
	times        []time.Duration
	starts       []time.Duration // nil if they were not recorded
	reportDelays []time.Duration // nil if the policy heard of runs at once
	scale        float64         // factor on the times
	sourceBatch  int             // the batch that the samples come from, less one
	nextIndex    *int            // the next sample in order; batches that borrow the same samples share it
}

// samplesByBatch checks recorded times, given by stage, batch size - 1 and run, and returns the samples of every stage
// and batch size. starts has the times at which they began, in the same order, or is nil. plannedTimes
// returns the planned times of a stage by batch size - 1. A size without samples takes those of another size, scaled by
// the ratio of their planned times. Negative times and wrong starts are errors, which name the sampleKind (runs or
// transfers).
func (e *recordedService) samplesByBatch(sampleKind string, recordedTimes, starts [][][]time.Duration, plannedTimes func(stage int) []time.Duration) ([][]batchSamples, error) {
	byStage := make([][]batchSamples, len(e.tables.Stages))
	if len(recordedTimes) > len(byStage) {
		return nil, fmt.Errorf("recorded %s: %d stages, the plan has %d", sampleKind, len(recordedTimes), len(byStage))
	}
	for stage := range recordedTimes {
		// No recorded time may be negative.
		for sizeIndex, times := range recordedTimes[stage] {
			for _, duration := range times {
				if duration < 0 {
					return nil, fmt.Errorf("recorded %s of stage %d at batch %d: %v, expected at least 0", sampleKind, stage, sizeIndex+1, duration)
				}
			}
		}

		// Batches without samples borrow those of the nearest batch.
		byStage[stage] = nearestSamples(recordedTimes[stage], plannedTimes(stage))
		if starts == nil {
			continue
		}
		if err := checkStarts(recordedTimes[stage], starts, stage); err != nil {
			return nil, err
		}
		for sizeIndex := range byStage[stage] {
			if samples := &byStage[stage][sizeIndex]; samples.times != nil {
				samples.starts = starts[stage][samples.sourceBatch]
			}
		}
	}
	return byStage, nil
}

// checkStarts returns an error unless the recorded runs of a stage have one start each, in rising order. runs has the
// times of the stage by batch size - 1 and run; starts has the starts of all stages.
func checkStarts(runs [][]time.Duration, starts [][][]time.Duration, stage int) error {
	if stage >= len(starts) || len(starts[stage]) != len(runs) {
		return fmt.Errorf("recorded starts of stage %d: not as many batches as its times", stage)
	}
	for sizeIndex, list := range starts[stage] {
		if len(list) != len(runs[sizeIndex]) {
			return fmt.Errorf("recorded starts of stage %d at batch %d: %d, expected one per time, %d", stage, sizeIndex+1, len(list), len(runs[sizeIndex]))
		}
		if !slices.IsSorted(list) {
			return fmt.Errorf("recorded starts of stage %d at batch %d: not in order", stage, sizeIndex+1)
		}
	}
	return nil
}

// addReportDelays gives the samples of runs their recorded report delays (by how much later than its end the policy
// heard of a run). It returns an error if their number is not that of the runs, or one is negative.
func (e *recordedService) addReportDelays(samples Samples) error {
	if samples.ReportDelays == nil {
		return nil
	}
	for stage := range samples.Runs {
		if stage >= len(samples.ReportDelays) || len(samples.ReportDelays[stage]) != len(samples.Runs[stage]) {
			return fmt.Errorf("what the policy was told of stage %d: not as many batches as its times", stage)
		}
		for sizeIndex, list := range samples.ReportDelays[stage] {
			if len(list) != len(samples.Runs[stage][sizeIndex]) || slices.ContainsFunc(list, isNegative) {
				return fmt.Errorf("what the policy was told of stage %d at batch %d: %d times, expected one of at least 0 per run, %d", stage, sizeIndex+1, len(list), len(samples.Runs[stage][sizeIndex]))
			}
		}
		for sizeIndex := range e.runSamples[stage] {
			if batch := &e.runSamples[stage][sizeIndex]; batch.times != nil {
				batch.reportDelays = samples.ReportDelays[stage][batch.sourceBatch]
			}
		}
	}
	return nil
}

// isNegative reports whether a duration is below 0.
func isNegative(duration time.Duration) bool { return duration < 0 }

// samplesOfLoads checks the recorded times of loads and returns their samples by network. It returns an error for
// negative times, or starts that are missing or not in order. A network without recorded loads has no samples, and
// takes its planned time.
func (e *recordedService) samplesOfLoads(samples Samples) ([]batchSamples, error) {
	if len(samples.Loads) > len(e.tables.Networks) {
		return nil, fmt.Errorf("recorded loads: %d networks, the plan has %d", len(samples.Loads), len(e.tables.Networks))
	}
	byNetwork := make([]batchSamples, len(samples.Loads))
	for network, list := range samples.Loads {
		if slices.ContainsFunc(list, isNegative) {
			return nil, fmt.Errorf("recorded loads of network %d: %v, expected at least 0", network, slices.Min(list))
		}
		if len(list) == 0 {
			continue
		}

		// Enter the samples, with their starts if these were recorded.
		byNetwork[network] = batchSamples{times: list, scale: 1, nextIndex: new(int)}
		if samples.LoadStarts == nil {
			continue
		}
		if network >= len(samples.LoadStarts) || len(samples.LoadStarts[network]) != len(list) || !slices.IsSorted(samples.LoadStarts[network]) {
			return nil, fmt.Errorf("recorded starts of loads of network %d: expected one per load, in order", network)
		}
		byNetwork[network].starts = samples.LoadStarts[network]
	}
	return byNetwork, nil
}

// nearestSamples returns the samples of every batch size of a stage: its own, or those of the nearest batch size that
// has some, scaled by the ratio of the planned times (by batch size - 1). Of two equally near it takes the smaller one.
// sourceBatch is the batch size - 1 from which samples come; sizes that borrow the same samples take turns in them
// (nextIndex).
func nearestSamples(recordedTimes [][]time.Duration, plannedTimes []time.Duration) []batchSamples {
	byBatch := make([]batchSamples, len(plannedTimes))
	nextIndexes := make([]int, len(plannedTimes))
	for sizeIndex := range plannedTimes {
		// Look at batch sizes ever further away, the smaller one first.
		for distance := 0; distance < len(plannedTimes) && byBatch[sizeIndex].times == nil; distance++ {
			for _, candidate := range [2]int{sizeIndex - distance, sizeIndex + distance} {
				isRecordedSize := candidate >= 0 && candidate < min(len(recordedTimes), len(plannedTimes))
				if byBatch[sizeIndex].times != nil || !isRecordedSize || len(recordedTimes[candidate]) == 0 {
					continue // samples were found at the smaller size, or there are none at this one
				}
				byBatch[sizeIndex] = batchSamples{times: recordedTimes[candidate], scale: 1, sourceBatch: candidate, nextIndex: &nextIndexes[candidate]}
				if candidate != sizeIndex && plannedTimes[candidate] > 0 {
					byBatch[sizeIndex].scale = float64(plannedTimes[sizeIndex]) / float64(plannedTimes[candidate])
				}
			}
		}
	}
	return byBatch
}

// sampleTime returns the time of the next sample for a batch of batchSize at a stage. If there is no sample, it returns
// plannedTime. samplesByStage has the samples by stage and batch size - 1; those that come from another batch size are
// scaled by the ratio of the planned times. It also sets e.reportDelay to the one recorded with the sample: the time from
// the end of a run until the policy hears of it.
func (e *recordedService) sampleTime(samplesByStage [][]batchSamples, stage, batchSize int32, plannedTime time.Duration) time.Duration {
	if samplesByStage[stage] == nil || samplesByStage[stage][batchSize-1].times == nil {
		return plannedTime
	}
	samples := &samplesByStage[stage][batchSize-1]
	index := e.sampleIndex(samples)
	if samples.reportDelays != nil {
		e.reportDelay = samples.reportDelays[index]
	}
	duration := samples.times[index]
	if samples.scale != 1 {
		duration = time.Duration(math.Round(samples.scale * float64(duration)))
	}
	return duration
}

// sampleIndex returns the index in samples.times of the sample to take next: a random one if samples are drawn; if their
// starts were recorded, the one that began nearest to this time of the run; otherwise the next in order.
func (e *recordedService) sampleIndex(samples *batchSamples) int {
	switch {
	case e.rng != nil:
		return e.rng.IntN(len(samples.times))
	case samples.starts != nil:
		return nearestIndex(samples.starts, e.elapsed)
	}
	index := *samples.nextIndex
	*samples.nextIndex = (index + 1) % len(samples.times)
	return index
}

// RunTime returns the time of the next recorded run of a batch of this size at a stage, at least 1 ns. It implements Service.
func (e *recordedService) RunTime(stage, batch int32) time.Duration {
	e.reportDelay = 0
	return max(1, e.sampleTime(e.runSamples, stage, batch, e.exactService.RunTime(stage, batch)))
}

// ReportDelay returns how much later than its end the policy heard of the run whose time was taken last. It
// implements Service.
func (e *recordedService) ReportDelay() time.Duration { return e.reportDelay }

// LoadTime returns the time of the next recorded load of a network, and false if none was recorded. It implements
// Service.
func (e *recordedService) LoadTime(network int32) (time.Duration, bool) {
	if int(network) >= len(e.loadSamples) || e.loadSamples[network].times == nil {
		return 0, false
	}
	loads := &e.loadSamples[network]
	return loads.times[e.sampleIndex(loads)], true
}

// TransferTime returns the time of the next recorded transfer of a batch of this size into a stage. It implements Service.
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
