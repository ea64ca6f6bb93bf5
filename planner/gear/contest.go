package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"
	"time"
)

// contest is which cascades on a design keep which latency, with what runs of gears alone
// showed. A run says which latency its gear keeps, whatever latency is looked for.
type contest struct {
	*design
	total  *int // runs of the whole search
	target float64
	rung   time.Duration // of the longest batch
	fronts [][]option    // by range: of accuracy over estimated latency and over load, by rising accuracy
}

// option is a cascade in a range.
type option struct {
	cascade  int
	stages   int
	accuracy float64       // weighted
	guess    float64       // seconds that it is estimated to keep
	doubt    float64       // how wrong that may be
	showed   float64       // seconds that a run showed it to keep; 0: none was made
	proved   time.Duration // latency that trials have shown it to keep
	trial    Trial         // likewise
}

// guess lists the options of every range.
func (c *contest) guess(ctx context.Context) error {
	if c.fill != nil {
		if err := c.fill(ctx); err != nil {
			return err
		}
	}
	load := make([]float64, len(c.list))
	for i := range c.list {
		load[i] = c.least(i)
	}
	guesses, lightest := newEstimator(c.design).tails(load), Pareto(load, c.list)
	for r, edge := range c.p.Edges {
		guess := guesses[r]
		list := append(Pareto(guess, c.list), lightest...)
		slices.SortFunc(list, func(a, b int) int {
			return cmp.Or(cmp.Compare(c.list[a].Correct, c.list[b].Correct), cmp.Compare(a, b))
		})
		var front []option
		for _, i := range slices.Compact(list) {
			if !math.IsInf(guess[i], 1) {
				front = append(front, option{cascade: i, stages: len(c.list[i].Models), accuracy: c.p.Weights[r] * accuracyOn(c.p, &c.list[i]), guess: guess[i], doubt: doubt(load[i] * edge)})
			}
		}
		c.fronts = append(c.fronts, front)
	}
	return nil
}

// doubt is how wrong an estimate may be at a load: rounds grow without end towards
// full load, where queues of the simulated length do not.
func doubt(load float64) float64 { return 1.15 + 10*max(0, load-.9) }

// keeps is the latency that an option keeps: what a run showed, else what is
// estimated times how far that was off for the nearest option with as many
// stages that was run; for others it says less.
func keeps(front []option, k int) float64 {
	o := &front[k]
	best, nearest := cmp.Or(o.showed, o.guess), math.MaxInt
	for n := range front {
		other := &front[n]
		far := max(n-k, k-n)
		if other.stages != o.stages {
			far += len(front)
		}
		if o.showed == 0 && other.showed > 0 && far < nearest {
			best, nearest = o.guess*other.showed/other.guess, far
		}
	}
	return best
}

// picksWithin is the most accurate option of every range that seems to keep a
// latency, -1 where none does, and their weighted accuracy.
func (c *contest) picksWithin(seem [][]float64, latency float64) (picks []int, accuracy float64) {
	for r, front := range c.fronts {
		pick := -1
		for k := range front {
			if seem[r][k] <= latency {
				pick = k
			}
		}
		if picks = append(picks, pick); pick < 0 {
			return picks, math.Inf(-1)
		}
		accuracy += front[pick].accuracy
	}
	return picks, accuracy
}

func (c *contest) seem() [][]float64 {
	out := make([][]float64, len(c.fronts))
	for r, front := range c.fronts {
		for k := range front {
			out[r] = append(out[r], keeps(front, k))
		}
	}
	return out
}

// possible is the least latency, in seconds, at which the target seems reached.
func (c *contest) possible() float64 {
	seem := c.seem()
	var steps []float64
	for r := range seem {
		steps = append(steps, seem[r]...)
	}
	slices.Sort(steps)
	at := sort.Search(len(steps), func(i int) bool {
		_, accuracy := c.picksWithin(seem, steps[i])
		return accuracy >= c.target-1e-12
	})
	if at == len(steps) {
		return math.Inf(1)
	}
	return steps[at]
}

// refine runs what would be taken, until nothing taken is unknown and nothing
// that could be seems better. It returns the least latency at which the target
// is reached, if that is below a limit.
func (c *contest) refine(ctx context.Context, limit float64) (float64, error) {
	for range maxRefines {
		latency := c.possible()
		if math.IsInf(latency, 1) || latency > limit && c.bench.runs > 0 { // not by estimates alone
			return latency, nil
		}
		seem := c.seem()
		picks, _ := c.picksWithin(seem, latency)
		news, err := c.show(ctx, picks, latency)
		if err == nil && !news {
			news, err = c.show(ctx, c.doubtful(seem, picks, latency), latency)
		}
		if err != nil || !news {
			return latency, err
		}
	}
	return c.possible(), nil
}

// maxRefines ends a refinement that goes on finding what looks better.
const maxRefines = 200

// doubtful is, for every range, an option that has not been run, is more accurate
// than what is taken and seems too slow by no more than an estimate can be wrong;
// -1 where there is none.
func (c *contest) doubtful(seem [][]float64, picks []int, latency float64) []int {
	var list []int
	for r, front := range c.fronts {
		least, best := math.Inf(1), -1
		for k := picks[r] + 1; k < len(front); k++ {
			if o := &front[k]; o.showed == 0 && seem[r][k] < min(least, o.doubt*latency) && o.accuracy > front[picks[r]].accuracy {
				least, best = seem[r][k], k
			}
		}
		list = append(list, best)
	}
	return list
}

// show runs those of some options that were not; false: all were.
func (c *contest) show(ctx context.Context, picks []int, latency float64) (news bool, err error) {
	for r, k := range picks {
		if k < 0 || c.fronts[r][k].showed > 0 {
			continue
		}
		news = true
		if err := c.run(ctx, r, &c.fronts[r][k], latency); err != nil {
			return false, err
		}
	}
	return news, nil
}

// run tries an option, for as long as a trial begins.
func (c *contest) run(ctx context.Context, r int, o *option, latency float64) error {
	s, err := c.at(ctx, o.cascade)
	if err != nil {
		return err
	}
	rate := c.p.Edges[r]
	if s.taken*rate > 1 {
		o.showed = math.Inf(1)
		return nil
	}
	p := *c.p
	p.SLO = seconds(latency)
	a := attempt{c: s.cascade, minQueue: 1, shares: s.shares, rate: rate, length: p.runLength(rate), limit: seconds(2 * latency)}
	*c.total++
	got, err := c.bench.run(ctx, &a)
	if err != nil {
		return err
	}
	if o.showed = max(got.tail, mayGrow*got.growth).Seconds(); got.above {
		o.showed = a.limit.Seconds()
	}
	return nil
}

// prove tries what would be taken as gears of any plan are tried. What does not pass
// keeps a longer latency only.
func (c *contest) prove(ctx context.Context, latency float64, slo time.Duration) (kept bool, err error) {
	q, b := *c.p, *c.bench
	b.p, q.SLO, kept = &q, slo, true
	picks, _ := c.picksWithin(c.seem(), latency)
	for r, k := range picks {
		o := &c.fronts[r][k]
		if o.proved > 0 && o.proved <= slo {
			continue
		}
		s, err := c.at(ctx, o.cascade)
		if err != nil {
			return false, err
		}
		t, err := b.try(ctx, s.cascade, 1, s.shares, c.p.Edges[r])
		if err != nil {
			return false, err
		}
		if t.Passed {
			o.proved, o.trial = slo, t
		} else {
			o.showed, kept = latencyStep*max(slo, t.Latency).Seconds(), false
		}
	}
	*c.total += b.runs - c.bench.runs
	c.bench.runs, c.bench.orders, c.bench.latencies = b.runs, b.orders, b.latencies
	return kept, nil
}

// outcome is what trials have shown.
func (c *contest) outcome(ctx context.Context, s *quickest, latency float64, slo time.Duration) (*Outcome, error) {
	p := *c.p
	p.SLO = slo
	out := c.out
	out.Problem, out.Goal, out.Cascades = &p, LeastLatency, s.enumerated
	picks, _ := c.picksWithin(c.seem(), latency)
	for r, k := range picks {
		o := &c.fronts[r][k]
		stair, err := c.at(ctx, o.cascade)
		if err != nil {
			return nil, err
		}
		out.Front = max(out.Front, len(c.fronts[r]))
		out.Gears = append(out.Gears, gearOf(&p, stair, p.Edges[r], o.trial))
		out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
	}
	return &out, nil
}
