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

// Service says how long work takes. Its methods are called when the work
// starts, in the order of the run.
type Service interface {
	// Run is the time of a batch at a stage (an index into Tables.Stages).
	Run(stage, batch int32) time.Duration
	// Transfer is the time of the transfer of a batch into a stage whose
	// planned time is given.
	Transfer(stage, batch int32, planned time.Duration) time.Duration
}

// Clocked is a Service that wants to know when work starts: Tick is called
// before Run with the time since the first request.
type Clocked interface {
	Service
	Tick(now time.Duration)
}

// Rested is a Service that wants to know how long a device had nothing to do: Idle is
// called before Run with that.
type Rested interface {
	Service
	Idle(since time.Duration)
}

// Served is a Service that knows what serving adds to the times of work.
type Served interface {
	Service
	// Told is how long after the end of the run that was asked for last the policy
	// hears of it. What ends with the run ends then. The device goes on meanwhile.
	Told() time.Duration
	// Load is how long a network takes to load; false: as planned.
	Load(network int32) (time.Duration, bool)
}

// Exact takes the times of the tables, those of serving where they have them: no jitter.
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

// serving takes what serving does, and more for a run on a device that was idle.
type serving struct {
	exact
	idle time.Duration
}

// Idle implements Rested.
func (s *serving) Idle(since time.Duration) { s.idle = since }

func (s *serving) Run(stage, batch int32) time.Duration {
	took, more := s.exact.Run(stage, batch), s.t.Stages[stage].Idle
	if s.idle < formats.IdleGap {
		more = time.Duration(float64(more) * float64(s.idle) / float64(formats.IdleGap))
	}
	return took + more
}

// Distribution of service times around the tables' figures.
type Distribution uint8

// Distributions with the tables' time as mean and a coefficient of variation.
const (
	Lognormal   Distribution = iota
	Normal                   // cut off below a hundredth of the mean
	Exponential              // the coefficient of variation is 1
)

// Jitter draws run times around those of the tables, from the stream "service"
// of a seed. Transfers take their planned time.
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

// Samples are recorded service times of a real run: Runs[stage][batch-1] and
// Transfers[stage][batch-1], each in the order of recording. Where none was
// recorded for a batch, the samples of the nearest recorded batch of the stage
// are scaled by the tables' ratio; where a stage has none, the tables' time is
// taken.
type Samples struct {
	Runs      [][][]time.Duration
	Transfers [][][]time.Duration
	// Starts[stage][batch-1], where it is given, says when the runs began,
	// rising, counted from the first request.
	Starts [][][]time.Duration
	// Told[stage][batch-1], where it is given, says for each run how long after its
	// end the policy heard of it.
	Told [][][]time.Duration
	// Loads[network] are loads at run time, LoadStarts when they began, as of runs.
	Loads, LoadStarts [][]time.Duration
}

// Empirical draws from recorded service times: in the order of recording, from
// the start again when they run out, or, with draw, at random from the stream
// "service" of a seed. Where the starts were recorded, and without draw, a run
// takes the time of that run of its batch which began nearest to it: a machine
// that was slow for a while is slow for the same requests.
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

type empirical struct {
	exact
	rng             *rand.Rand // nil: in order, or by their starts
	runs, transfers [][]samples
	loads           []samples     // by network
	now             time.Duration // since the first request
	told            time.Duration // of the run that was taken last
}

// Tick implements Clocked.
func (e *empirical) Tick(now time.Duration) { e.now = now }

// samples of one stage and batch.
type samples struct {
	times  []time.Duration
	starts []time.Duration // nil: unknown
	told   []time.Duration // nil: at once
	scale  float64
	from   int  // the batch that the times are of, less one
	next   *int // shared by the batches that borrow the same times
}

func (e *empirical) lists(what string, recorded, starts [][][]time.Duration, table func(int) []time.Duration) ([][]samples, error) {
	out := make([][]samples, len(e.t.Stages))
	if len(recorded) > len(out) {
		return nil, fmt.Errorf("recorded %s: %d stages, the plan has %d", what, len(recorded), len(out))
	}
	for stage := range recorded {
		for b, times := range recorded[stage] {
			for _, d := range times {
				if d < 0 {
					return nil, fmt.Errorf("recorded %s of stage %d at batch %d: %v, expected at least 0", what, stage, b+1, d)
				}
			}
		}
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

// startsFit holds the starts of a stage's runs against their times.
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

// toldBy notes how late the policy heard of runs.
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

// loadLists are the loads of networks.
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

// nearestSamples gives every batch of a table its own samples or those of the
// nearest batch that has some (the smaller one of two).
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

// choose is the place of the sample that is taken.
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

// Told implements Served.
func (e *empirical) Told() time.Duration { return e.told }

// Load implements Served.
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

// nearest is the place in a rising list of what is nearest to a time, the later
// one of two.
func nearest(list []time.Duration, at time.Duration) int {
	i, _ := slices.BinarySearch(list, at)
	if i == len(list) || i > 0 && at-list[i-1] < list[i]-at {
		i--
	}
	return i
}
