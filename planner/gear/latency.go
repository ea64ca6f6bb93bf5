package gear

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Of the search for the least latency: how close it comes, and how long a
// latency can be, in times that all models take for their largest batches.
const (
	latencyStep = 1.05
	boundStep   = 1.02
	slowest     = 20
)

// fastest finds the least latency that every range keeps while the weighted
// accuracy reaches the target: a multiple-choice knapsack (a cascade per range,
// accuracy weighted by the range's share of the requests) whose objective is the
// worst range's tail. For a given latency every range takes the most accurate
// cascade that keeps it, so that the least latency comes from bisection; where
// the relaxation falls short of the target, nothing is simulated.
func (s *search) fastest(ctx context.Context) (*Outcome, error) {
	low, high := s.p.extremes()
	b, err := s.relaxed(ctx, s.with(high, s.p.Devices))
	if err != nil {
		return nil, err
	}
	if math.IsNaN(b) || s.p.misses(b) {
		if math.IsNaN(b) { // some range has no cascade at all: that is the reason
			if _, err := s.once(ctx, s.with(high, s.p.Devices)); err != nil {
				return nil, err
			}
		}
		return nil, s.p.short(b)
	}
	top := high
	for float64(high) > boundStep*float64(low) {
		mid := between(low, high)
		b, err := s.relaxed(ctx, s.with(mid, s.p.Devices))
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(b) && !s.p.misses(b) {
			high = mid
		} else {
			low = mid
		}
	}
	var best *Outcome
	if s.p.Mixed() {
		if best, err = s.fastestWhole(ctx); err == nil {
			best, err = s.bisect(ctx, best, low, high, top)
		}
	} else {
		f := &fast{search: s, top: top}
		best, err = f.least(ctx, low)
	}
	if err != nil {
		return nil, err
	}
	best.Value, best.ValueBound = best.worst().Seconds()*1e3, low.Seconds()*1e3
	return best, nil
}

func between(low, high time.Duration) time.Duration {
	return time.Duration(math.Sqrt(float64(low) * float64(high)))
}

// fastestWhole is, on one kind whose devices some member does not fit on, the plan
// without that member; nil: there is none, or there are several kinds.
func (s *search) fastestWhole(ctx context.Context) (*Outcome, error) {
	if len(s.p.Kinds) != 1 {
		return nil, nil
	}
	out, err := s.identical().fastest(ctx)
	if _, none := errors.AsType[*Infeasible](err); none {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w, err := s.waysOf(s.with(out.Problem.SLO, 0))
	if err != nil {
		return nil, err
	}
	bounds, _, err := w.staged.bounds(ctx, -1)
	if err != nil {
		return nil, err
	}
	out.bound(bounds)
	return out, nil
}

// identical is the search without members in stages, of one kind.
func (s *search) identical() *search {
	q := *s.p
	q.Kinds, q.Devices, q.Memory = nil, s.p.Kinds[0].Devices, s.p.Kinds[0].Memory
	return &search{p: &q, o: s.o}
}

// bisect plans anew for every latency that it tries, for less than that of a plan, if
// there is one.
func (s *search) bisect(ctx context.Context, best *Outcome, fails, next, top time.Duration) (*Outcome, error) {
	if next *= 2; best != nil {
		next = between(fails, best.worst())
	}
	for best == nil || float64(best.worst()) > latencyStep*float64(fails) {
		next = min(next, top)
		out, err := s.once(ctx, s.with(next, s.p.Devices))
		switch _, inf := errors.AsType[*Infeasible](err); {
		case err == nil:
			best = out
		case !inf || next == top:
			return nil, err
		default:
			fails = next
		}
		if best == nil {
			next *= 2
		} else {
			next = between(fails, best.worst())
		}
	}
	return best, nil
}

// worst is the longest tail latency of all gears.
func (out *Outcome) worst() time.Duration {
	w := time.Duration(0)
	for r := range out.Gears {
		w = max(w, out.Gears[r].Trial.Latency)
	}
	return w
}

// fast searches for the least latency with what runs of gears alone showed. A
// run says which latency its gear keeps, whatever latency is looked for, as long
// as placement and largest batches stay: these follow the latency in rungs only.
type fast struct {
	*search
	top     time.Duration
	grounds map[time.Duration]*ground // by rung
}

// rungStep is the factor from rung to rung.
const rungStep = 1.25

// rung is the longest batch that is run where a latency is to be kept.
func rung(latency time.Duration) time.Duration {
	n := math.Floor(math.Log(latency.Seconds())/math.Log(rungStep) + 1e-9)
	return time.Duration(math.Pow(rungStep, n) * float64(time.Second))
}

// ground is a rung's placement and its options: by range, the fronts of
// accuracy over estimated latency and over load, by rising accuracy.
type ground struct {
	rung    time.Duration // of the longest batch
	longest time.Duration // that a batch of several may be; one sample may take longer
	batches []int         // largest, by model
	bench   *bench
	work    [][]float64 // of every cascade
	fronts  [][]option
}

// option is a cascade in a range.
type option struct {
	cascade  int
	stages   int
	accuracy float64 // weighted
	guess    float64 // seconds that it is estimated to keep
	doubt    float64 // how wrong that may be
	short    result
	full     result
	proved   time.Duration // latency that trials have shown it to keep
	trial    Trial         // likewise
}

// result is what a run showed.
type result struct {
	known bool
	least float64 // latency, in seconds, that is kept
}

// least estimates first, so that few options are run at all: those that would
// be taken at the latency that seems possible, until all that are taken have
// been run. Short runs come first, runs of full length decide.
func (f *fast) least(ctx context.Context, bound time.Duration) (*Outcome, error) {
	f.grounds = map[time.Duration]*ground{}
	g := f.ground(rung(min(3*bound, f.top)))
	for range 10 {
		next := f.ground(rung(min(f.top, seconds(f.possible(g, false)))))
		if next == g {
			break
		}
		g = next
	}
	latency, err := f.refine(ctx, g, false)
	if err != nil {
		return nil, err
	}
	if latency > f.top.Seconds() {
		return f.once(ctx, f.with(f.top, f.p.Devices)) // says what is missing
	}
	for { // batches must not be longer than the latency, and shorter ones may be better
		below := f.ground(rung(g.rung - 1))
		if latency >= g.rung.Seconds() && f.possible(below, false) >= latency {
			break
		}
		less, err := f.refine(ctx, below, false)
		if err != nil {
			return nil, err
		}
		if latency >= g.rung.Seconds() && less >= latency {
			break
		}
		g, latency = below, less
	}
	for {
		if latency, err = f.refine(ctx, g, true); err != nil {
			return nil, err
		}
		if latency > f.top.Seconds() {
			return f.once(ctx, f.with(f.top, f.p.Devices))
		}
		slo := max(seconds(latency), g.rung)
		if kept, err := f.prove(ctx, g, latency, slo); err != nil {
			return nil, err
		} else if kept {
			return f.outcome(g, slo)
		}
	}
}

// prove tries what would be taken as gears of any plan are tried. What does not pass
// keeps a longer latency only.
func (f *fast) prove(ctx context.Context, g *ground, latency float64, slo time.Duration) (kept bool, err error) {
	q, b := *g.bench.p, *g.bench
	b.p, q.SLO, kept = &q, slo, true
	picks, _ := g.take(g.seem(true), latency)
	for r, k := range picks {
		c := &g.fronts[r][k]
		if c.proved > 0 && c.proved <= slo {
			continue
		}
		shares, _ := b.pl.Split(g.work[c.cascade])
		runs := b.runs
		t, err := b.try(ctx, &f.all[c.cascade], 1, shares, f.p.Edges[r])
		if err != nil {
			return false, err
		}
		if f.runs += b.runs - runs; t.Passed {
			c.proved, c.trial = slo, t
		} else {
			c.full.least, kept = latencyStep*max(slo, t.Latency).Seconds(), false
		}
	}
	return kept, nil
}

func seconds(s float64) time.Duration { return time.Duration(math.Ceil(min(s, 1e6) * 1e9)) }

// ground is the best placement for a rung, and its options.
func (f *fast) ground(longest time.Duration) *ground {
	if g := f.grounds[longest]; g != nil {
		return g
	}
	p := f.with(time.Duration(rungStep*float64(longest)), f.p.Devices)
	p.longest = longest
	actual := time.Duration(0)
	for m := range p.Models {
		if batch, _ := p.operating(m); batch > 0 {
			actual = max(actual, p.Models[m].Times[batch-1])
		}
	}
	batches, _ := speedsOf(p)
	for _, g := range f.grounds { // a rung above may have no longer batches
		if g.rung == actual && slices.Equal(g.batches, batches[0]) {
			f.grounds[longest] = g
			return g
		}
	}
	g := &ground{rung: actual, longest: longest, batches: batches[0], work: p.works(f.all)}
	usable := p.usable()
	var some []Cascade
	for i := range f.all {
		if f.alone[i] <= p.SLO && f.all[i].within(usable) {
			some = append(some, f.all[i])
		}
	}
	if len(some) > 0 {
		pl := placing{p}.best(some, p.works(some), 1)[0]
		g.bench = newBench(p, pl, f.o.Seed)
		load := make([]float64, len(f.all))
		for i := range load {
			if load[i] = math.Inf(1); f.all[i].within(usable) {
				load[i] = pl.Load(g.work[i])
			}
		}
		lightest := Pareto(load, f.all)
		for r, guess := range estimate(p, pl, f.all, load) {
			list := append(Pareto(guess, f.all), lightest...)
			slices.SortFunc(list, func(a, b int) int {
				return cmp.Or(cmp.Compare(f.all[a].Correct, f.all[b].Correct), cmp.Compare(a, b))
			})
			var front []option
			for _, i := range slices.Compact(list) {
				if math.IsInf(guess[i], 1) {
					continue
				}
				front = append(front, option{cascade: i, stages: len(f.all[i].Models), accuracy: p.Weights[r] * float64(f.all[i].Correct) / float64(p.Planned.N), guess: guess[i], doubt: doubt(load[i] * p.Edges[r])})
			}
			g.fronts = append(g.fronts, front)
		}
	}
	f.grounds[longest] = g
	return g
}

// keeps is the latency that an option keeps: what a run showed, else what is
// estimated times how far that was off for the nearest option with as many
// stages that was run; for others it says less.
func keeps(front []option, k int, full bool) float64 {
	c := &front[k]
	switch {
	case c.full.known:
		return c.full.least
	case c.short.known && !full:
		return c.short.least
	}
	best, nearest := c.guess, math.MaxInt
	if c.short.known {
		best = c.short.least
	}
	for n := range front {
		o := &front[n]
		far := max(n-k, k-n)
		if o.stages != c.stages {
			far += len(front)
		}
		if far >= nearest {
			continue
		}
		switch {
		case c.short.known && o.full.known && o.short.known:
			best, nearest = c.short.least*o.full.least/o.short.least, far
		case c.short.known:
		case o.full.known:
			best, nearest = c.guess*o.full.least/o.guess, far
		case o.short.known:
			best, nearest = c.guess*o.short.least/o.guess, far
		}
	}
	return best
}

// take is the most accurate option of every range that seems to keep a
// latency, -1 where none does, and their weighted accuracy.
func (g *ground) take(seem [][]float64, latency float64) (picks []int, accuracy float64) {
	for r, front := range g.fronts {
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

func (g *ground) seem(full bool) [][]float64 {
	out := make([][]float64, len(g.fronts))
	for r, front := range g.fronts {
		for k := range front {
			out[r] = append(out[r], keeps(front, k, full))
		}
	}
	return out
}

// possible is the least latency, in seconds, at which the target seems reached.
func (f *fast) possible(g *ground, full bool) float64 {
	seem := g.seem(full)
	var steps []float64
	for r := range seem {
		steps = append(steps, seem[r]...)
	}
	slices.Sort(steps)
	k, _ := slices.BinarySearchFunc(steps, f.p.Target-1e-12, func(latency, target float64) int {
		if _, accuracy := g.take(seem, latency); accuracy < target {
			return -1
		}
		return 1
	})
	if k == len(steps) {
		return math.Inf(1)
	}
	return steps[k]
}

// refine runs what would be taken, until nothing taken is unknown and nothing
// that could be seems better. It returns the least latency at which the target
// is reached.
func (f *fast) refine(ctx context.Context, g *ground, full bool) (float64, error) {
	for range maxRefines {
		latency := f.possible(g, full)
		if latency > f.top.Seconds() {
			return latency, nil
		}
		seem := g.seem(full)
		picks, _ := g.take(seem, latency)
		news := false
		for r, k := range picks {
			if c := &g.fronts[r][k]; !c.ran(full) {
				news = true
				if err := f.run(ctx, g, r, c, latency, full); err != nil {
					return 0, err
				}
			}
		}
		if news {
			continue
		}
		for r, k := range g.doubtful(seem, picks, latency) {
			if k < 0 {
				continue
			}
			news = true
			if err := f.run(ctx, g, r, &g.fronts[r][k], latency, full); err != nil {
				return 0, err
			}
		}
		if !news {
			return latency, nil
		}
	}
	return f.possible(g, full), nil
}

func (c *option) ran(full bool) bool { return c.full.known || !full && c.short.known }

// doubtful is, for every range, an option that has not been run, is more accurate
// than what is taken and seems too slow by no more than an estimate can be wrong;
// -1 where there is none.
func (g *ground) doubtful(seem [][]float64, picks []int, latency float64) []int {
	var list []int
	for r, front := range g.fronts {
		least, best := math.Inf(1), -1
		for k := picks[r] + 1; k < len(front); k++ {
			if c := &front[k]; !c.ran(false) && seem[r][k] < min(least, c.doubt*latency) && c.accuracy > front[picks[r]].accuracy {
				least, best = seem[r][k], k
			}
		}
		list = append(list, best)
	}
	return list
}

// doubt is how wrong an estimate may be at a load: rounds grow without end towards
// full load, where queues of the simulated length do not.
func doubt(load float64) float64 { return 1.15 + 10*max(0, load-.9) }

// maxRefines ends a refinement that goes on finding what looks better.
const maxRefines = 200

// run tries an option.
func (f *fast) run(ctx context.Context, g *ground, r int, c *option, latency float64, full bool) error {
	p, rate := f.with(seconds(latency), f.p.Devices), f.p.Edges[r]
	shares, _ := g.bench.pl.Split(g.work[c.cascade])
	a := attempt{c: &f.all[c.cascade], minQueue: 1, shares: shares, rate: rate, length: p.runLength(rate), limit: seconds(2 * latency)}
	if short := seconds(max(shortRun/rate, 10*latency)); !full && 3*short < 2*a.length {
		a.length = short
	} else {
		full = true // it is hardly longer
	}
	got, err := g.bench.run(ctx, &a)
	if err != nil {
		return err
	}
	f.runs++
	res := result{known: true, least: max(got.tail, mayGrow*got.growth).Seconds()}
	if got.above {
		res.least = a.limit.Seconds()
	}
	if full {
		c.full = res
	} else {
		c.short = res
	}
	return nil
}

// shortRun is how many requests a short run has at least.
const shortRun = 2000

// outcome is what runs of full length say can be kept.
func (f *fast) outcome(g *ground, latency time.Duration) (*Outcome, error) {
	p := f.with(latency, f.p.Devices)
	list, work, err := f.cascades(p)
	if err != nil {
		return nil, err
	}
	bounds := relaxation{p}.bounds(list, work)
	p.longest = g.longest
	out := &Outcome{Problem: p, Placement: g.bench.pl, Goal: LeastLatency, Cascades: len(f.all), Runs: f.runs, Bound: p.weighted(bounds)}
	picks, _ := g.take(g.seem(true), latency.Seconds())
	for r, k := range picks {
		c := &g.fronts[r][k]
		work := g.work[c.cascade]
		shares, _ := out.Placement.Split(work)
		out.Front = max(out.Front, len(g.fronts[r]))
		out.Gears = append(out.Gears, Planned{Cascade: f.all[c.cascade], MinQueue: 1, Shares: shares, Load: out.Placement.Load(work) * p.Edges[r], Trial: c.trial,
			Accuracy: float64(f.all[c.cascade].Correct) / float64(p.Planned.N), Bound: max(bounds[r], 0)})
		out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
	}
	return out, nil
}
