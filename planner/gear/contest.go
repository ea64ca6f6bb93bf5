package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// option is a cascade in a range.
type option struct {
	cascade  int
	stages   int
	accuracy float64       // weighted
	guess    float64       // seconds that it is estimated to keep
	seen     float64       // what runs showed it to keep; 0: none was made
	doubt    float64       // how wrong the guess may be, corrected by another: rounds grow towards full load
	full     bool          // such a run was as long as a trial begins
	proved   time.Duration // latency that trials have shown it to keep
	trial    Trial         // likewise
}

// contest is the search for the least latency on a design, with what runs of gears alone
// showed: a run says which latency its gear keeps, whatever latency is looked for.
type contest struct {
	*design
	target  float64
	fronts  [][]option  // by range, by rising accuracy
	seem    [][]float64 // the latencies that they seem to keep
	further []int       // by range: runs of what seemed too slow
}

// on is the plan of least latency on a design; nil: none is quicker than another.
func (s quickest) on(ctx context.Context, d *design, top time.Duration, than *Outcome) (*Outcome, error) {
	c := &contest{design: d, target: s.p.Target, further: make([]int, len(d.p.Edges))}
	if err := c.guess(ctx); err != nil {
		return nil, err
	}
	most := top.Seconds()
	if than != nil {
		most = than.worst().Seconds() / quickerBy
	}
	for {
		latency := max(c.possible(), d.longestBatch().Seconds())
		if math.IsInf(latency, 1) || latency > most && d.bench.runs > 0 { // not by estimates alone
			s.runs += d.bench.runs
			return nil, nil
		}
		picks, _ := c.take(latency)
		kept, err := c.show(ctx, picks, latency, false)
		if err == nil && kept {
			kept, err = c.show(ctx, c.doubtful(picks, latency), latency, false)
		}
		if err == nil && kept {
			kept, err = c.show(ctx, picks, latency, true)
		}
		if err == nil && kept {
			kept, err = c.prove(ctx, picks, seconds(latency))
		}
		if err != nil {
			return nil, err
		}
		if kept {
			s.runs += d.bench.runs
			return c.outcome(ctx, s, picks, seconds(latency))
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(math.Ceil(min(s, 1e6) * 1e9)) }

// guess lists the options of every range: the fronts of accuracy over estimated latency,
// and over load, by rising accuracy.
func (c *contest) guess(ctx context.Context) error {
	if c.fill != nil {
		if err := c.fill(ctx); err != nil {
			return err
		}
	}
	load, guess := make([]float64, len(c.list)), make([]float64, len(c.list))
	for i := range c.list {
		load[i] = c.least(i)
	}
	e, lightest := newEstimator(c.p), Pareto(load, c.list)
	for r, edge := range c.p.Edges {
		for i := range guess {
			if guess[i] = math.Inf(1); load[i]*edge <= 1 {
				guess[i] = e.tail(&c.list[i], edge, load[i])
			}
		}
		list := append(Pareto(guess, c.list), lightest...)
		slices.SortFunc(list, func(a, b int) int {
			return cmp.Or(cmp.Compare(c.list[a].Correct, c.list[b].Correct), cmp.Compare(a, b))
		})
		var front []option
		for _, i := range slices.Compact(list) {
			if !math.IsInf(guess[i], 1) {
				front = append(front, option{cascade: i, stages: len(c.list[i].Models), accuracy: c.p.Weights[r] * accuracyOn(c.p, &c.list[i]), guess: guess[i], doubt: 1.15 + 10*max(0, load[i]*edge-.9)})
			}
		}
		c.fronts = append(c.fronts, front)
	}
	return nil
}

// keeps is the latency that an option keeps: what a run showed, else what is estimated
// times how far that was off for the nearest option that was run, one with as many stages
// if there is one.
func keeps(front []option, k int) float64 {
	o := &front[k]
	if o.seen > 0 {
		return o.seen
	}
	best, nearest := o.guess, math.MaxInt
	for n := range front {
		far := max(n-k, k-n)
		if front[n].stages != o.stages {
			far += len(front)
		}
		if front[n].seen > 0 && far < nearest {
			best, nearest = o.guess*front[n].seen/front[n].guess, far
		}
	}
	return best
}

// take is the most accurate option of every range that seems to keep a latency, and
// their weighted accuracy; below 0: a range has none.
func (c *contest) take(latency float64) (picks []int, accuracy float64) {
	for r, front := range c.fronts {
		pick := -1
		for k := range front {
			if c.seem[r][k] <= latency {
				pick = k
			}
		}
		if picks = append(picks, pick); pick < 0 {
			return picks, -1
		}
		accuracy += front[pick].accuracy
	}
	return picks, accuracy
}

// possible is the least latency, in seconds, at which the target seems reached.
func (c *contest) possible() float64 {
	var steps []float64
	c.seem = nil
	for _, front := range c.fronts {
		list := make([]float64, len(front))
		for k := range front {
			list[k] = keeps(front, k)
		}
		c.seem, steps = append(c.seem, list), append(steps, list...)
	}
	slices.Sort(steps)
	at, _ := slices.BinarySearchFunc(steps, c.target-1e-12, func(latency, target float64) int {
		if _, accuracy := c.take(latency); accuracy < target {
			return -1
		}
		return 1
	})
	if at == len(steps) {
		return math.Inf(1)
	}
	return steps[at]
}

// doubtful is, for every range, an option that was not run, is more accurate than what is
// taken and seems too slow by no more than an estimate may be wrong; -1: there is none.
func (c *contest) doubtful(picks []int, latency float64) []int {
	list := make([]int, len(picks))
	for r, front := range c.fronts {
		least := math.Inf(1)
		list[r] = -1
		for k := picks[r] + 1; k < len(front); k++ {
			seems := c.seem[r][k]
			if o := &front[k]; o.seen == 0 && seems < least && (seems < o.doubt*latency || c.further[r] < furtherRuns) && o.accuracy > front[picks[r]].accuracy {
				least, list[r] = seems, k
			}
		}
		if list[r] >= 0 {
			c.further[r]++
		}
	}
	return list
}

// furtherRuns are those made in every range of what seems too slow.
const furtherRuns = 3

// shortRun is how many requests a run has at least that says which latency a gear keeps.
// How its mean latency grows says nothing yet: it wanders.
const shortRun = 2000

// show runs those of some options that were not, for a short while or as long as a trial
// begins; false: it did.
func (c *contest) show(ctx context.Context, picks []int, latency float64, full bool) (known bool, err error) {
	known = true
	for r, k := range picks {
		if k < 0 || c.fronts[r][k].full || !full && c.fronts[r][k].seen > 0 {
			continue
		}
		o := &c.fronts[r][k]
		known = false
		s, err := c.at(ctx, o.cascade)
		if err != nil {
			return false, err
		}
		rate := c.p.Edges[r]
		if o.seen, o.full = math.Inf(1), full; s.taken*rate > 1 {
			continue
		}
		q := *c.p
		q.SLO = seconds(latency)
		a := attempt{c: s.cascade, minQueue: 1, shares: s.shares, rate: rate, length: q.runLength(rate), limit: 2 * q.SLO}
		if !full {
			a.length = min(a.length, seconds(max(shortRun/rate, 10*latency)))
		}
		got, err := c.bench.run(ctx, &a)
		if err != nil {
			return false, err
		}
		if o.seen = max(got.tail, mayGrow*got.growth).Seconds(); !full {
			o.seen = got.tail.Seconds()
		}
		if got.above {
			o.seen = a.limit.Seconds()
		}
	}
	return known, nil
}

// prove tries options as gears of any plan are tried. What does not pass keeps a longer
// latency only.
func (c *contest) prove(ctx context.Context, picks []int, slo time.Duration) (kept bool, err error) {
	q, b := *c.p, *c.bench
	b.p, q.SLO, kept = &q, slo, true
	for r, k := range slices.Backward(picks) { // the highest rate fails first
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
			o.seen, kept = latencyStep*max(slo, t.Latency).Seconds(), false
			break
		}
	}
	c.bench.runs, c.bench.orders, c.bench.latencies = b.runs, b.orders, b.latencies
	return kept, nil
}

// outcome is what trials have shown.
func (c *contest) outcome(ctx context.Context, s quickest, picks []int, latency time.Duration) (*Outcome, error) {
	p := *c.p
	p.SLO = latency
	out := c.out
	out.Problem, out.Goal, out.Runs, out.Cascades = &p, LeastLatency, s.runs, s.enumerated
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
