package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/report"
)

// OwnLoads is what every model sustains beside the others.
type OwnLoads struct {
	// Loads are multiples of each model's own rate; 0: none was found.
	Loads []float64
	// Report is of the run at these loads; nil where a model has none.
	Report *formats.Report
	// Events are those of all runs of the search.
	Events int64
}

// OwnSearch says what loads of models are looked for.
type OwnSearch struct {
	Shares     []float64 // of requests in time that models are to attain
	Runs       int
	Step, Most float64   // loads are those of a LoadGrid of this step, up to the most
	From       []float64 // guessed; nil: 1
	// Least are loads below which nothing is worth a search: where a model fails at
	// them, none is made. nil: none.
	Least []float64
	// Together gives all models the same load. Where they share devices, one that has
	// too much fails the others, so that loads of their own are not found.
	Together bool
}

// LoadGrid numbers loads from 1. From a half up they lie a step apart. Below, each is larger
// than the one before by twice the step as a part of it, so that a model which sustains a small
// part of what its replicas carry is known as exactly as others. The first is about a step.
type LoadGrid struct{ Step float64 }

// half is the number of the load that is a half.
func (g LoadGrid) half() float64 {
	return 1 + math.Floor(math.Log(0.5/g.Step)/math.Log1p(2*g.Step))
}

// Load returns the load of a number.
func (g LoadGrid) Load(number int) float64 {
	above := float64(number) - g.half()
	if above >= 0 {
		return 0.5 + above*g.Step
	}
	return 0.5 * math.Pow(1+2*g.Step, above)
}

// Position returns where a load lies among the numbers; of those below all loads it returns 0.
func (g LoadGrid) Position(load float64) float64 {
	if load >= 0.5 {
		return g.half() + (load-0.5)/g.Step
	}
	return max(0, g.half()+math.Log(load/0.5)/math.Log1p(2*g.Step))
}

// Nearest returns the number of the load nearest to one, at least 1.
func (g LoadGrid) Nearest(load float64) int { return max(1, int(math.Round(g.Position(load)))) }

// FindOwnLoads looks for the highest load of every model at which it attains what is
// asked while the others have theirs. All models are looked at in the same runs, with
// the same random numbers at every point.
func FindOwnLoads(ctx context.Context, sc *Scenario, o OwnSearch) (*OwnLoads, error) {
	rates := sc.rates()
	grid := LoadGrid{o.Step}
	seen := map[string][]*Result{} // by points
	events := int64(0)
	at := func(ctx context.Context, points []int, runs int) (*shown, error) {
		key := fmt.Sprint(points)
		if done := seen[key]; len(done) >= runs {
			return show(done[:runs], len(rates)), nil
		}
		offered := make([]float64, len(rates))
		for i := range rates {
			offered[i] = rates[i] * grid.Load(points[i])
		}
		done, err := sc.AtRates(offered, 0).replicate(ctx, seen[key], runs)
		if err != nil {
			return nil, err
		}
		for _, run := range done[len(seen[key]):] {
			events += run.Events
		}
		seen[key] = done
		return show(done, len(rates)), nil
	}
	end := grid.Nearest(o.Most)
	search := make([]expecting, len(rates))
	for i := range search {
		guess := 1.
		if o.From != nil {
			guess = o.From[i]
		}
		search[i].bracket = bracket{at: min(grid.Nearest(guess), end), fails: end + 1}
	}
	if o.Least != nil {
		points, r, err := o.least(ctx, at, end)
		if r == nil || err != nil {
			return &OwnLoads{Loads: make([]float64, len(rates)), Events: events}, err
		}
		for i := range search {
			search[i].at = points[i]
			search[i].look(true, o.lost(r, i), o.Step)
			if o.From != nil && search[i].at < search[i].fails {
				search[i].at = max(search[i].at, min(grid.Nearest(o.From[i]), end))
			}
		}
	}
	if o.Together {
		least := slices.MinFunc(search, func(a, b expecting) int { return cmp.Compare(a.at, b.at) })
		for i := range search {
			search[i].at = least.at
		}
	}
	points := make([]int, len(rates))
	for {
		open := false
		for i := range search {
			open = open || !search[i].closed()
			if points[i] = search[i].at; search[i].closed() {
				points[i] = max(1, search[i].passes)
			}
		}
		if !open {
			found, err := o.jointly(ctx, points, at)
			if found != nil {
				found.Events = events
			}
			return found, err
		}
		r, err := at(ctx, points, o.Runs)
		if err != nil {
			return nil, err
		}
		all := r.attain(o.Shares)
		for i := range search {
			if !search[i].closed() {
				search[i].look(all || !o.Together && r.attained[i] >= o.Shares[i], o.lost(r, i), o.Step)
			}
		}
	}
}

// rates returns the requests per second of every model.
func (s *Scenario) rates() []float64 {
	if s.Rates != nil {
		return s.Rates
	}
	var rates []float64
	for i := range s.Tables.Models {
		rates = append(rates, s.Tables.Models[i].RPS)
	}
	return rates
}

// AtRates returns the scenario with other rates at load 1. If they are lower and arrivals are
// drawn, its runs last longer, so that they have as many requests, but at most the longest;
// with a longest of 0, as long as before.
func (s *Scenario) AtRates(rates []float64, longest time.Duration) *Scenario {
	sum := func(list []float64) (rps float64) {
		for _, r := range list {
			rps += r
		}
		return rps
	}
	at := *s
	at.Load, at.Rates = 1, rates
	if more := sum(s.rates()) / sum(rates); more > 1 && s.Recorded == nil && longest > s.Duration {
		at.Duration = min(longest, time.Duration(more*float64(s.Duration))).Round(time.Millisecond)
		at.Warmup = time.Duration(float64(s.Warmup) * float64(at.Duration) / float64(s.Duration))
	}
	return &at
}

// look simulates models at points of the grid.
type look func(ctx context.Context, points []int, runs int) (*shown, error)

// shown is what runs at points showed. A search needs what models attained, and a report
// only in the end: its percentiles take long.
type shown struct {
	runs     []*Result
	attained []float64 // by model
}

func show(runs []*Result, models int) *shown {
	s := &shown{runs: runs, attained: make([]float64, models)}
	accs := accumulators(runs)
	for m := range s.attained {
		s.attained[m] = report.Attained(accs, m)
	}
	return s
}

// attain returns whether all models attain their shares.
func (s *shown) attain(shares []float64) bool {
	for i := range s.attained {
		if s.attained[i] < shares[i] {
			return false
		}
	}
	return true
}

// lost returns what a model loses of its requests, as a multiple of what it may. Together it
// is the most that one loses.
func (o *OwnSearch) lost(r *shown, model int) float64 {
	share := func(i int) float64 { return (1 - r.attained[i]) / max(1-o.Shares[i], leastAllowed) }
	most := share(model)
	for i := range r.attained {
		if o.Together {
			most = max(most, share(i))
		}
	}
	return most
}

const (
	leastAllowed = 1e-4 // of requests, that may be lost
	leastLost    = 1.0 / 8
	lossGrowth   = 25 // of the logarithm of what is lost, by a load of 1 more
)

// expecting is a bracket that goes to where what was lost lets it expect the highest
// point that passes. Near it the logarithm of the loss grows evenly with the load.
type expecting struct {
	bracket
	over [2]float64 // that logarithm at passes and at fails; 0 is what may be lost
}

// look takes in what the point showed, and goes to the next. Where an expectation was
// wrong by much, the next one is not trusted.
func (b *expecting) look(pass bool, lost, step float64) {
	over, before := math.Log(max(lost, leastLost)), b.fails-b.passes
	if pass {
		b.over[0] = min(over, 0)
	} else {
		b.over[1] = max(over, 0)
	}
	known := b.both[0] && b.both[1]
	b.saw(pass)
	switch left := b.fails - b.passes; {
	case b.closed():
	case !b.both[0] || !b.both[1]:
		far := math.Abs(over) / (lossGrowth * step)
		if pass {
			b.at = min(b.passes+max(1, b.step/2, int(far)), b.fails-1)
		} else {
			b.at = max(b.fails-max(1, b.step/2, int(math.Ceil(far))), b.passes+1)
		}
	case !known || 2*left <= before+1:
		part := -b.over[0] / max(b.over[1]-b.over[0], 1e-9)
		b.at = b.passes + min(max(1, int(float64(left)*part)), left-1)
	}
}

// least looks whether every model attains what is asked at the least loads, and shows
// it; nil where one does not. Where one loses in a single run more than all runs may,
// that is known after one.
func (o *OwnSearch) least(ctx context.Context, at look, end int) (points []int, known *shown, err error) {
	for _, load := range o.Least {
		points = append(points, max(1, int(LoadGrid{o.Step}.Position(load)+1e-9)))
	}
	if o.Together {
		for i, most := 0, slices.Max(points); i < len(points); i++ {
			points[i] = most
		}
	}
	if slices.Max(points) > end {
		return nil, nil, nil
	}
	for _, runs := range slices.Compact([]int{1, o.Runs}) {
		r, err := at(ctx, points, runs)
		if err != nil {
			return nil, nil, err
		}
		shares := slices.Clone(o.Shares)
		for i, share := range shares {
			shares[i] = 1 - (1-share)*float64(o.Runs)/float64(runs)
		}
		if !r.attain(shares) {
			return nil, nil, nil
		}
		known = r
	}
	return points, known, nil
}

// jointly lowers loads that were found one by one until they hold together, more each
// time.
func (o *OwnSearch) jointly(ctx context.Context, points []int, at look) (*OwnLoads, error) {
	out := &OwnLoads{Loads: make([]float64, len(points))}
	for round := 0; ; round++ {
		r, err := at(ctx, points, o.Runs)
		if err != nil {
			return nil, err
		}
		holds, lower := true, false
		for i := range points {
			if r.attained[i] >= o.Shares[i] {
				continue
			}
			holds = false
			if points[i] > 1 {
				points[i] = max(1, points[i]-1<<(round/2))
				lower = true
			}
		}
		if holds {
			for i := range points {
				out.Loads[i] = LoadGrid{o.Step}.Load(points[i])
			}
			out.Report = pool(r.runs).Report
		}
		if !lower {
			return out, nil
		}
	}
}
