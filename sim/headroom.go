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

// ModelLoads is the result of FindModelLoads.
type OwnLoads struct {
	// Loads are multiples of each model's own rate. 0 means that none was found.
	Loads []float64
	// Report is that of the runs at these loads, or nil if some model has no load.
	Report *formats.Report
	// Events counts the events of all runs of the search.
	Events int64
}

// ModelLoadSearch says which loads are searched.
type OwnSearch struct {
	Shares     []float64 // share of requests in time that is asked, by model
	Runs       int
	Step, Most float64   // loads are those of a LoadGrid with this step, up to MaxLoad
	From       []float64 // guesses of the result; if nil, 1
	// MinLoads are loads that the result must reach. If a model fails at them, the search
	// ends without a result. If nil, there are none.
	Least []float64
	// SameLoad gives all models the same load. It is for models that share devices: there
	// one with too much load makes the others fail, so that loads of their own cannot be found.
	Together bool
}

// LoadGrid numbers loads from 1. From a half on they lie a step apart. Below a half each is
// larger than the one before by the factor 1 + 2*Step, so that small loads are found with
// the same relative accuracy as large ones. The first load is about one step.
type LoadGrid struct{ Step float64 }

// halfNumber returns the number of the load 0.5.
func (g LoadGrid) half() float64 {
	return 1 + math.Floor(math.Log(0.5/g.Step)/math.Log1p(2*g.Step))
}

// Load returns the load with a number.
func (g LoadGrid) Load(number int) float64 {
	above := float64(number) - g.half()
	if above >= 0 {
		return 0.5 + above*g.Step
	}
	return 0.5 * math.Pow(1+2*g.Step, above)
}

// Position returns the number of a load, with a fraction. For loads below the grid it returns 0.
func (g LoadGrid) Position(load float64) float64 {
	if load >= 0.5 {
		return g.half() + (load-0.5)/g.Step
	}
	return max(0, g.half()+math.Log(load/0.5)/math.Log1p(2*g.Step))
}

// NearestNumber returns the number of the load of the grid that is nearest to load, at least 1.
func (g LoadGrid) Nearest(load float64) int { return max(1, int(math.Round(g.Position(load)))) }

// FindModelLoads searches for the highest load of every model at which the model attains its
// share while the others have theirs. All models are searched in the same runs, with the
// same random numbers at every point.
func FindOwnLoads(ctx context.Context, sc *Scenario, o OwnSearch) (*OwnLoads, error) {
	rates := sc.rates()
	grid := LoadGrid{o.Step}
	seen := map[string][]*Result{} // by the text of the points
	events := int64(0)

	// simulate returns the result at the points of all models. Earlier runs at the same points are reused.
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

	// Start every model at its guess.
	end := grid.Nearest(o.Most)
	search := make([]expecting, len(rates))
	for i := range search {
		guess := 1.
		if o.From != nil {
			guess = o.From[i]
		}
		search[i].bracket = bracket{at: min(grid.Nearest(guess), end), fails: end + 1}
	}

	// Begin above the loads that must be reached, if there are any.
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

	// With one load for all models, start at the lowest.
	if o.Together {
		least := slices.MinFunc(search, func(a, b expecting) int { return cmp.Compare(a.at, b.at) })
		for i := range search {
			search[i].at = least.at
		}
	}

	// Simulate the candidates of all models until every search is done, then lower them until they hold together.
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

// rates returns the requests per second of every model at load 1.
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

// AtRates returns the scenario with other rates at load 1. If these are lower and arrivals are
// drawn, its runs last longer, so that they have as many requests, but not longer than
// longest. With longest 0 they last as long as before.
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

// pointSimulator simulates the models at points of the grid.
type look func(ctx context.Context, points []int, runs int) (*shown, error)

// pointResult holds runs at the same points. A search needs the attainments, and a report only
// in the end, because its percentiles take long.
type shown struct {
	runs     []*Result
	attained []float64 // by model
}

// newPointResult computes the attainment of every model.
func show(runs []*Result, models int) *shown {
	s := &shown{runs: runs, attained: make([]float64, models)}
	accs := accumulators(runs)
	for m := range s.attained {
		s.attained[m] = report.Attained(accs, m)
	}
	return s
}

// allAttain returns whether all models attain their shares.
func (s *shown) attain(shares []float64) bool {
	for i := range s.attained {
		if s.attained[i] < shares[i] {
			return false
		}
	}
	return true
}

// lossRatio returns the share of requests that a model loses, divided by the share that it may
// lose. With SameLoad it is the largest of all models.
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

// Constants of the search.
const (
	leastAllowed = 1e-4    // share of requests that every model may lose, for the division
	leastLost    = 1.0 / 8 // loss ratios below it are taken as equal to it
	lossGrowth   = 25      // assumed slope of log(loss ratio) over the load
)

// guidedBracket is a gridBracket that chooses its candidates by the losses at both ends. Near
// the highest passing point the logarithm of the loss grows linearly with the load.
type expecting struct {
	bracket
	over [2]float64 // log of the loss ratio at highestPass and at lowestFail; it is 0 at the allowed loss
}

// observeLoss takes in the result of the candidate and chooses the next one. If the last
// interpolation narrowed the bracket by less than half, the next step bisects.
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
		// Only one end was seen: go as far as the slope says.
		far := math.Abs(over) / (lossGrowth * step)
		if pass {
			b.at = min(b.passes+max(1, b.step/2, int(far)), b.fails-1)
		} else {
			b.at = max(b.fails-max(1, b.step/2, int(math.Ceil(far))), b.passes+1)
		}
	case !known || 2*left <= before+1:
		// Both were seen: interpolate linearly to a loss ratio of 1.
		part := -b.over[0] / max(b.over[1]-b.over[0], 1e-9)
		b.at = b.passes + min(max(1, int(float64(left)*part)), left-1)
	}
}

// checkMinLoads simulates the loads that must be reached. It returns their points and result,
// or no result if a model fails. The first run alone decides if a model loses more in it than
// it may lose in all runs.
func (o *OwnSearch) least(ctx context.Context, at look, end int) (points []int, known *shown, err error) {
	for _, load := range o.Least {
		points = append(points, max(1, int(LoadGrid{o.Step}.Position(load)+1e-9)))
	}

	// The points of the grid at or below these loads.
	if o.Together {
		for i, most := 0, slices.Max(points); i < len(points); i++ {
			points[i] = most
		}
	}
	if slices.Max(points) > end {
		return nil, nil, nil
	}

	// Simulate one run with what all runs may lose, then all runs.
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

// lowerUntilJoint lowers loads that were found one by one until all models attain their shares
// together, by steps that double every second round.
func (o *OwnSearch) jointly(ctx context.Context, points []int, at look) (*OwnLoads, error) {
	out := &OwnLoads{Loads: make([]float64, len(points))}
	for round := 0; ; round++ {
		r, err := at(ctx, points, o.Runs)
		if err != nil {
			return nil, err
		}

		// Lower the models that fail.
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

		// Stop if all hold, or no model can be lowered.
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
