package gear

import (
	"cmp"
	"context"
	"slices"

	"inferplan/solver/tolerance"
)

// Of ranges that climb: gears that fail one after another before a range is done, the
// requests that all runs together may come to, or else how often the measured ones, and how
// often, at the confidence of trials, a fresh stream may miss the SLO.
const (
	climbFails   = 2
	mostClimbing = 1_000_000
	timesOver    = 20
	mayMiss      = .05
)

// climbed is a plan of which ranges have gears that the measured rates allow as a whole,
// though their upper edges, held for ever, do not: rates may stay below an edge, or pass
// it in a moment. Nothing but streams at these rates says which: requests at even
// distances and at random instants. What the plan says of its accuracy and of the shares
// of its ranges is what the streams showed.
func (s *search) climbed(ctx context.Context, out *Outcome) (*Outcome, error) {
	p := out.Problem
	if !p.shown() || (p.Target > 0 || s.o.Any) && !p.misses(out.Accuracy) {
		return out, nil
	}
	c := newClimber(partOf(p), out, s.o.Seed)
	err := c.upwards(ctx)
	if s.runs += c.runs; !p.many() {
		return kept(ctx, c.outcome(out), err)
	}
	if err != nil || p.misses(out.Accuracy+c.now.accuracy-c.before.accuracy) {
		return kept(ctx, out, err)
	}
	whole := newClimber(p, out, s.o.Seed)
	err = whole.follow(ctx, c.steps)
	s.runs += whole.runs
	return kept(ctx, whole.outcome(out), err)
}

// climber raises the gears of a plan on its placement, range by range.
type climber struct {
	*bench
	layout  *layout
	streams int     // at random instants, of which each has to keep the SLO
	front   []stair // by rising load
	gears   []Planned
	gate    int      // stream that gears are first tried on: the one that failed last
	before  onRates  // what the plan shows on the first
	now     onRates  // what the gears show on it
	all     *onRates // what they show on all streams; nil: none of them was raised
	steps   []raised // from the plan to these gears
}

// newClimber climbs from a plan at the measured rates of a problem, those that it was made
// for or a part of them. A part needs one stream: the rates as a whole have the last word.
func newClimber(p *Problem, out *Outcome, seed uint64) *climber {
	l := out.design.layout
	c := &climber{bench: newBench(p, l.configs, l.chains, seed), layout: l.x.within(p).layoutOf(l.configs, l.chains), streams: streams(p), gears: out.Gears, gate: noGate}
	if p != out.Problem {
		c.streams = 1
	}
	return c
}

// noGate is the gate where nothing was run yet.
const noGate = evenly - 1

// upwards raises ranges to other cascades until none can be raised.
func (c *climber) upwards(ctx context.Context) error {
	p := c.p
	var err error
	if c.front, err = c.layout.ladder(ctx, 0, -1); err != nil {
		return err
	}
	c.gate = 0
	if c.now, err = c.onMeasured(ctx, c.gears, c.gate, 1-p.Percentile); err != nil || !c.now.keeps(p) {
		return err
	}
	c.before = c.now
	order := upTo(len(p.Edges)) // those of most requests first
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Weights[b], p.Weights[a]) })
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

// raised are gears of which a range's was made more accurate, and what they show on the
// gate.
type raised struct {
	r     int
	gears []Planned
	now   onRates
}

// path are ever more accurate gears for a range, as far as the gate keeps the SLO: steps
// up the front double while they succeed.
func (c *climber) path(ctx context.Context, r int) (path []raised, err error) {
	p, from, best := c.p, &c.gears[r], c.now
	first, _ := slices.BinarySearchFunc(c.front, from.Cascade.Correct, func(s stair, correct int32) int {
		if s.cascade.Correct <= correct {
			return -1
		}
		return 1
	})
	for first < len(c.front) && p.Weights[r]*(accuracyOn(p, c.front[first].cascade)-from.Accuracy) < worthwhile {
		first++
	}
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

// highest takes the most accurate gears of a path that keep the SLO on all streams, and
// tells how many steps that is. With an error it takes those that it has seen to keep it.
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
	if low > 0 {
		c.gears, c.now = path[low-1].gears, path[low-1].now
		c.steps = append(c.steps, path[:low]...)
	}
	if err == nil && gate != c.gate && c.gate != noGate {
		c.gate = gate
		c.now, err = c.onMeasured(ctx, c.gears, gate, 1)
	}
	return low, err
}

// onAll is what gears show on all streams: the worst tail and lateness, the mean of the
// shares under the gears on those at random instants. Nil where one does not keep the SLO,
// or a fresh one might not: then the stream that says so comes with it.
func (c *climber) onAll(ctx context.Context, up *raised) (all *onRates, failed int, err error) {
	p, latest := c.p, 0
	var random []onRates
	var lates []float64
	all = &onRates{}
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
	all.accuracy, all.under = meanOfStreams(random)
	if len(lates) > 1 && !tolerance.Independent(lates).SeldomAbove(1-p.Percentile, 1, mayMiss, trialConfidence) {
		return nil, latest, nil
	}
	return all, 0, nil
}

// outcome is the plan with the gears that were raised.
func (c *climber) outcome(out *Outcome) *Outcome {
	if c.all == nil {
		return out
	}
	one := *out
	one.Gears = c.gears
	one.says(c.p, c.all)
	return &one
}
