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
	// Run returns the time of a batch at a stage (an index into Tables.Stages).
	Run(stage, batch int32) time.Duration
	// Transfer returns the time of the transfer of a batch into a stage. The tables
	// give the planned time.
	Transfer(stage, batch int32, planned time.Duration) time.Duration
}

// TickObserver is a Service that is told when work starts: ObserveTime is called before
// RunTime with the time since the first request.
type Clocked interface {
	Service
	Tick(now time.Duration)
}

// IdleObserver is a Service that is told how long a device was idle: ObserveIdle is called
// before RunTime with that time.
type Rested interface {
	Service
	Idle(since time.Duration)
}

// ServingTimes is a Service that has times which only serving shows.
type Served interface {
	Service
	// ReportDelay returns the time from the end of the latest run until the policy hears of it.
	// What ends with the run ends at the later time. The device goes on meanwhile.
	Told() time.Duration
	// LoadTime returns how long a network takes to load. If it returns false, the planned time holds.
	Load(network int32) (time.Duration, bool)
}

// Exact returns a service with the times of the tables, or those of serving if the tables
// have them. There is no jitter.
func Exact(t *policy.Tables) Service { return &serving{exact: exact{t}} }

type exact struct{ t *policy.Tables }

func (e exact) Run(stage, batch int32) time.Duration {
	s := &e.t.Stages[stage]
	if s.Mean != nil {
		return s.Mean[batch-1]
	}
	return s.Infer[batch-1]
}

func (e exact) Transfer(_, _ int32, planned time.Duration) time.Duration { return planned }

// idleAwareService adds the time that a run takes longer after its device was idle. It grows
// linearly up to formats.IdleGap.
type serving struct {
	exact
	idle time.Duration
}

// Idle implements IdleObserver.
func (s *serving) Idle(since time.Duration) { s.idle = since }

func (s *serving) Run(stage, batch int32) time.Duration {
	took, more := s.exact.Run(stage, batch), s.t.Stages[stage].Idle
	if s.idle < formats.IdleGap {
		more = time.Duration(float64(more) * float64(s.idle) / float64(formats.IdleGap))
	}
	return took + more
}

// Distribution is a distribution of service times around those of the tables.
type Distribution uint8

// Distributions with the tables' time as mean and a coefficient of variation.
const (
	Lognormal   Distribution = iota
	Normal                   // cut off below a hundredth of the mean
	Exponential              // the coefficient of variation is 1
)

// Jitter returns a service that draws run times around those of the tables, from the
// stream "service" of a seed. Transfers take their planned time.
func Jitter(t *policy.Tables, dist Distribution, cv float64, seed uint64) Service {
	sigma := math.Sqrt(math.Log1p(cv * cv))
	return &jitter{exact: exact{t}, dist: dist, cv: cv, sigma: sigma, rng: seeded.New(seed, "service")}
}

type jitter struct {
	exact
	dist      Distribution
	cv, sigma float64
	rng       *rand.Rand
}

func (j *jitter) Run(stage, batch int32) time.Duration {
	mean := j.exact.Run(stage, batch)
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
	Told [][][]time.Duration
	// Loads[network] holds the times of loads while serving, LoadStarts when they began, as Starts does.
	Loads, LoadStarts [][]time.Duration
}

// Empirical returns a service that draws from recorded times: in the order of recording,
// from the start again when they run out, or, with draw, at random from the stream
// "service" of a seed. Without draw and with recorded starts, a run takes the time of the
// recorded run of its batch that began nearest to it: a machine that was slow for a while
// is slow for the same requests.
func Empirical(t *policy.Tables, s Samples, draw bool, seed uint64) (Service, error) {
	e := &empirical{exact: exact{t}}
	if draw {
		e.rng = seeded.New(seed, "service")
	}
	var err error
	if e.runs, err = e.lists("runs", s.Runs, s.Starts, func(stage int) []time.Duration { return t.Stages[stage].Infer }); err != nil {
		return nil, err
	}
	if err := e.toldBy(s); err != nil {
		return nil, err
	}
	if e.loads, err = e.loadLists(s); err != nil {
		return nil, err
	}
	if e.transfers, err = e.lists("transfers", s.Transfers, nil, func(stage int) []time.Duration { return t.Stages[stage].Xfer }); err != nil {
		return nil, err
	}
	return e, nil
}

// recordedService is the service of RecordedService.
type empirical struct {
	exact
	rng *rand.Rand // nil if samples are taken in order or by their starts

	// By stage and batch, less one.
	runs, transfers [][]samples
	loads           []samples     // by network
	now             time.Duration // since the first request
	told            time.Duration // of the run that was taken last
}

// Tick implements TickObserver.
func (e *empirical) Tick(now time.Duration) { e.now = now }

// batchSamples holds the samples of one stage and batch.
type samples struct {
	times  []time.Duration
	starts []time.Duration // nil if they were not recorded
	told   []time.Duration // nil if the policy heard of runs at once
	scale  float64         // factor on the times
	from   int             // the batch that the samples come from, less one
	next   *int            // the next sample in order; batches that borrow the same samples share it
}

// samplesByBatch checks recorded times and returns the samples of every stage and batch.
// table returns the planned times of a stage.
func (e *empirical) lists(what string, recorded, starts [][][]time.Duration, table func(int) []time.Duration) ([][]samples, error) {
	out := make([][]samples, len(e.t.Stages))
	if len(recorded) > len(out) {
		return nil, fmt.Errorf("recorded %s: %d stages, the plan has %d", what, len(recorded), len(out))
	}
	for stage := range recorded {
		// No recorded time may be negative.
		for b, times := range recorded[stage] {
			for _, d := range times {
				if d < 0 {
					return nil, fmt.Errorf("recorded %s of stage %d at batch %d: %v, expected at least 0", what, stage, b+1, d)
				}
			}
		}

		// Batches without samples borrow those of the nearest batch.
		out[stage] = nearestSamples(recorded[stage], table(stage))
		if starts == nil {
			continue
		}
		if err := startsFit(recorded[stage], starts, stage); err != nil {
			return nil, err
		}
		for b := range out[stage] {
			if s := &out[stage][b]; s.times != nil {
				s.starts = starts[stage][s.from]
			}
		}
	}
	return out, nil
}

// checkStarts returns an error unless a stage has one start for every run, in rising order.
func startsFit(runs [][]time.Duration, starts [][][]time.Duration, stage int) error {
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

// addReportDelays gives the samples of runs their report delays.
func (e *empirical) toldBy(s Samples) error {
	if s.Told == nil {
		return nil
	}
	for stage := range s.Runs {
		if stage >= len(s.Told) || len(s.Told[stage]) != len(s.Runs[stage]) {
			return fmt.Errorf("what the policy was told of stage %d: not as many batches as its times", stage)
		}
		for b, list := range s.Told[stage] {
			if len(list) != len(s.Runs[stage][b]) || slices.ContainsFunc(list, negative) {
				return fmt.Errorf("what the policy was told of stage %d at batch %d: %d times, expected one of at least 0 per run, %d", stage, b+1, len(list), len(s.Runs[stage][b]))
			}
		}
		for b := range e.runs[stage] {
			if own := &e.runs[stage][b]; own.times != nil {
				own.told = s.Told[stage][own.from]
			}
		}
	}
	return nil
}

func negative(d time.Duration) bool { return d < 0 }

// loadSamples checks the recorded loads and returns their samples by network.
func (e *empirical) loadLists(s Samples) ([]samples, error) {
	if len(s.Loads) > len(e.t.Networks) {
		return nil, fmt.Errorf("recorded loads: %d networks, the plan has %d", len(s.Loads), len(e.t.Networks))
	}
	out := make([]samples, len(s.Loads))
	for n, list := range s.Loads {
		if slices.ContainsFunc(list, negative) {
			return nil, fmt.Errorf("recorded loads of network %d: %v, expected at least 0", n, slices.Min(list))
		}
		if len(list) == 0 {
			continue
		}
		out[n] = samples{times: list, scale: 1, next: new(int)}
		if s.LoadStarts == nil {
			continue
		}
		if n >= len(s.LoadStarts) || len(s.LoadStarts[n]) != len(list) || !slices.IsSorted(s.LoadStarts[n]) {
			return nil, fmt.Errorf("recorded starts of loads of network %d: expected one per load, in order", n)
		}
		out[n].starts = s.LoadStarts[n]
	}
	return out, nil
}

// nearestSamples returns the samples of every batch of a table: its own, or those of the
// nearest batch that has some. Of two batches equally near it takes the smaller one.
func nearestSamples(recorded [][]time.Duration, table []time.Duration) []samples {
	out := make([]samples, len(table))
	next := make([]int, len(table))
	for b := range table {
		for away := 0; away < len(table) && out[b].times == nil; away++ {
			for _, o := range [2]int{b - away, b + away} {
				if o < 0 || o >= min(len(recorded), len(table)) || len(recorded[o]) == 0 || out[b].times != nil {
					continue
				}
				out[b] = samples{times: recorded[o], scale: 1, from: o, next: &next[o]}
				if o != b && table[o] > 0 {
					out[b].scale = float64(table[b]) / float64(table[o])
				}
			}
		}
	}
	return out
}

// sampleTime returns the time of the next sample of a stage and batch. If there is none, it
// returns the planned time.
func (e *empirical) take(lists [][]samples, stage, batch int32, planned time.Duration) time.Duration {
	if lists[stage] == nil || lists[stage][batch-1].times == nil {
		return planned
	}
	s := &lists[stage][batch-1]
	i := e.choose(s)
	if s.told != nil {
		e.told = s.told[i]
	}
	d := s.times[i]
	if s.scale != 1 {
		d = time.Duration(math.Round(s.scale * float64(d)))
	}
	return d
}

// sampleIndex returns the index of the sample to take.
func (e *empirical) choose(s *samples) int {
	switch {
	case e.rng != nil:
		return e.rng.IntN(len(s.times))
	case s.starts != nil:
		return nearest(s.starts, e.now)
	}
	i := *s.next
	*s.next = (i + 1) % len(s.times)
	return i
}

func (e *empirical) Run(stage, batch int32) time.Duration {
	e.told = 0
	return max(1, e.take(e.runs, stage, batch, e.exact.Run(stage, batch)))
}

// ReportDelay implements ServingTimes.
func (e *empirical) Told() time.Duration { return e.told }

// LoadTime implements ServingTimes.
func (e *empirical) Load(network int32) (time.Duration, bool) {
	if int(network) >= len(e.loads) || e.loads[network].times == nil {
		return 0, false
	}
	s := &e.loads[network]
	return s.times[e.choose(s)], true
}

func (e *empirical) Transfer(stage, batch int32, planned time.Duration) time.Duration {
	return e.take(e.transfers, stage, batch, planned)
}

// nearestIndex returns the index of the entry of a rising list that is nearest to target.
// Of two entries equally near it returns the later one.
func nearest(list []time.Duration, at time.Duration) int {
	i, _ := slices.BinarySearch(list, at)
	if i == len(list) || i > 0 && at-list[i-1] < list[i]-at {
		i--
	}
	return i
}
