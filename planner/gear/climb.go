package gear

import (
	"cmp"
	"context"
	"slices"

	"inferplan/solver/tolerance"
)

// Limits of climbing: gears of a range that fail in a row, requests of all runs (or multiples of the measured
// ones), and the chance that a fresh stream misses the SLO, at the confidence of trials.
const (
	climbFails   = 2
	mostClimbing = 1_000_000
	timesOver    = 20
	mayMiss      = .05
)

// climbRanges returns a plan whose ranges have more accurate gears that the measured rates allow as a whole,
// though the upper edges, held forever, do not: rates may stay below an edge or pass it quickly. Only streams at
// these rates can show that, with requests evenly spaced and at random. The accuracy of the plan and its weights
// are what the streams showed.
func (s *search) climbed(ctx context.Context, out *Outcome) (*Outcome, error) {
	p := out.Problem
	if !p.shown() || (p.Target > 0 || s.o.Any) && !p.misses(out.Accuracy) {
		return out, nil
	}

	// Climb on the rates, or on a sample if they are many.
	c := newClimber(partOf(p), out, s.o.Seed)
	err := c.upwards(ctx)
	if s.runs += c.runs; !p.many() {
		return kept(ctx, c.outcome(out), err)
	}
	if err != nil || p.misses(out.Accuracy+c.now.accuracy-c.before.accuracy) {
		return kept(ctx, out, err)
	}

	// Repeat the steps on all rates.
	whole := newClimber(p, out, s.o.Seed)
	err = whole.follow(ctx, c.steps)
	s.runs += whole.runs
	return kept(ctx, whole.outcome(out), err)
}

// gearClimber raises the gears of a plan on its placement, range by range.
type climber struct {
	*bench
	layout  *layout
	streams int       // number of random streams, each of which must keep the SLO
	front   []stair   // by rising load
	gears   []Planned // by range
	gate    int       // stream on which gears are tried first: the one that failed last
	before  onRates   // of the plan, on the first stream
	now     onRates   // of the gears, on the gate stream
	all     *onRates  // of the gears, on all streams; nil if none was raised
	steps   []raised  // from the plan to the gears
}

// newClimber returns a climber from a plan at the measured rates of a problem: those of the plan or a sample of
// them. On a sample one stream suffices, because the steps are repeated on all rates.
func newClimber(p *Problem, out *Outcome, seed uint64) *climber {
	l := out.design.layout
	c := &climber{bench: newBench(p, l.configs, l.chains, seed), layout: l.x.within(p).layoutOf(l.configs, l.chains), streams: streams(p), gears: out.Gears, gate: noGate}
	if p != out.Problem {
		c.streams = 1
	}
	return c
}

// noGate is the gate stream before anything was run.
const noGate = evenly - 1

// climbAll raises the gears of ranges until none can be raised.
func (c *climber) upwards(ctx context.Context) error {
	p := c.p
	var err error
	if c.front, err = c.layout.ladder(ctx, 0, -1); err != nil {
		return err
	}

	// What the plan shows.
	c.gate = 0
	if c.now, err = c.onMeasured(ctx, c.gears, c.gate, 1-p.Percentile); err != nil || !c.now.keeps(p) {
		return err
	}
	c.before = c.now
	order := upTo(len(p.Edges)) // the range of the most requests first
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Weights[b], p.Weights[a]) })

	// Raise one range after another.
	for news := true; news; {
		news = false
		for _, r := range order {
			path, err := c.path(ctx, r)
			if err != nil {
				return err
			}
			passed, err := c.highest(ctx, path)
			if err != nil {
				return err
			}
			news = news || passed > 0
		}
	}
	return nil
}

// climbStep is a set of gears in which one range was given a more accurate one, with the result on the gate
// stream.
type raised struct {
	r     int
	gears []Planned
	now   onRates
}

// climbPath returns ever more accurate gears for a range, as far as they keep the SLO on the gate stream. Steps
// along the front double while they succeed.
func (c *climber) path(ctx context.Context, r int) (path []raised, err error) {
	p, from, best := c.p, &c.gears[r], c.now
	first, _ := slices.BinarySearchFunc(c.front, from.Cascade.Correct, func(s stair, correct int32) int {
		if s.cascade.Correct <= correct {
			return -1
		}
		return 1
	})

	// Start at the first cascade that gains enough.
	for first < len(c.front) && p.Weights[r]*(accuracyOn(p, c.front[first].cascade)-from.Accuracy) < worthwhile {
		first++
	}

	// Try cascades, with growing steps, until some fail in a row.
	step, fails, most := 1, 0, max(mostClimbing, timesOver*int(sum(p.Measured)))
	for k := first; k < len(c.front) && fails < climbFails && c.requests < most; {
		next := slices.Clone(c.gears)
		next[r] = gearOf(p, &c.front[k], p.Edges[r], Trial{})
		now, err := c.onMeasured(ctx, next, c.gate, 1-p.Percentile)
		if err != nil {
			return nil, err
		}
		switch ok := now.keeps(p) && now.accuracy > best.accuracy+worthwhile; {
		case ok:
			path, best, fails = append(path, raised{r, next, now}), now, 0
			first, step = k+1, 2*step
		case step > 1:
			step = 1
		default:
			fails++
			first = k + 1
		}
		if k = first + step - 1; k >= len(c.front) {
			step, k = 1, first
		}
	}
	return path, nil
}

// climbHighest takes the most accurate gears of a path that keep the SLO on all streams, and returns how many
// steps of the path that is. If it returns an error, it has taken the best gears that were seen to keep it.
func (c *climber) highest(ctx context.Context, path []raised) (passed int, err error) {
	low, gate := 0, c.gate
	for high, at := len(path), len(path)-1; low < high && err == nil; at = (low + high) / 2 {
		all, failed, ended := c.onAll(ctx, &path[at])
		if err = ended; all != nil {
			c.all, low = all, at+1
		} else {
			high, gate = at, failed
		}
	}

	// Take the step.
	if low > 0 {
		c.gears, c.now = path[low-1].gears, path[low-1].now
		c.steps = append(c.steps, path[:low]...)
	}

	// The stream that failed becomes the gate.
	if err == nil && gate != c.gate && c.gate != noGate {
		c.gate = gate
		c.now, err = c.onMeasured(ctx, c.gears, gate, 1)
	}
	return low, err
}

// runAllStreams returns the result of gears on all streams: the worst tail and late share, and the means over the
// random streams of the rest. If a stream misses the SLO, or a fresh one might, the result is nil, and
// failedStream is the stream that shows it.
func (c *climber) onAll(ctx context.Context, up *raised) (all *onRates, failed int, err error) {
	p, latest := c.p, 0
	var random []onRates
	var lates []float64
	all = &onRates{}

	// Run the streams.
	for k := evenly; k < c.streams; k++ {
		now := up.now
		if k != c.gate {
			if now, err = c.onMeasured(ctx, up.gears, k, 1-p.Percentile); err != nil || !now.keeps(p) {
				return nil, k, err
			}
		}
		if all.worst(&now); k == evenly {
			continue
		}
		if lates = append(lates, now.late); now.late > lates[latest] {
			latest = len(lates) - 1
		}
		random = append(random, now)
	}

	// A fresh stream may miss the SLO only with a small chance.
	all.accuracy, all.under = meanOfStreams(random)
	if len(lates) > 1 && !tolerance.Independent(lates).SeldomAbove(1-p.Percentile, 1, mayMiss, trialConfidence) {
		return nil, latest, nil
	}
	return all, 0, nil
}

// climbedPlan returns the plan with the raised gears.
func (c *climber) outcome(out *Outcome) *Outcome {
	if c.all == nil {
		return out
	}
	one := *out
	one.Gears = c.gears
	one.says(c.p, c.all)
	return &one
}
