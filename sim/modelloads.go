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
type ModelLoads struct {
	// Loads are multiples of each model's own rate. 0 means that none was found.
	Loads []float64
	// Report is that of the runs at these loads, or nil if some model has no load.
	Report *formats.Report
	// Events counts the events of all runs of the search.
	Events int64
}

// ModelLoadSearch says which loads are searched.
type ModelLoadSearch struct {
	Shares        []float64 // share of requests in time that is asked, by model
	Runs          int
	Step, MaxLoad float64   // loads are those of a LoadGrid with this step, up to MaxLoad
	StartLoads    []float64 // guesses of the result; if nil, 1
	// MinLoads are loads that the result must reach. If a model fails at them, the search
	// ends without a result. If nil, there are none.
	MinLoads []float64
	// SameLoad gives all models the same load. It is for models that share devices: there
	// one with too much load makes the others fail, so that loads of their own cannot be found.
	SameLoad bool
}

// LoadGrid numbers loads from 1. From a half on they lie a step apart. Below a half each is
// larger than the one before by the factor 1 + 2*Step, so that small loads are found with
// the same relative accuracy as large ones. The first load is about one step.
type LoadGrid struct{ Step float64 }

// halfNumber returns the number of the load 0.5.
func (g LoadGrid) halfNumber() float64 {
	return 1 + math.Floor(math.Log(0.5/g.Step)/math.Log1p(2*g.Step))
}

// Load returns the load of a point's number on the grid. Above 0.5 the steps are equal, below they shrink in
// proportion to the load, so that small loads are found as exactly.
func (g LoadGrid) Load(number int) float64 {
	aboveHalf := float64(number) - g.halfNumber()
	if aboveHalf >= 0 {
		return 0.5 + aboveHalf*g.Step
	}
	return 0.5 * math.Pow(1+2*g.Step, aboveHalf)
}

// Position returns the number of a load, with a fraction. For loads below the grid it returns 0.
func (g LoadGrid) Position(load float64) float64 {
	if load >= 0.5 {
		return g.halfNumber() + (load-0.5)/g.Step
	}
	return max(0, g.halfNumber()+math.Log(load/0.5)/math.Log1p(2*g.Step))
}

// NearestNumber returns the number of the load of the grid that is nearest to load, at least 1.
func (g LoadGrid) NearestNumber(load float64) int { return max(1, int(math.Round(g.Position(load)))) }

// FindModelLoads searches for the highest load of every model at which the model attains its share of requests in
// time while the others have theirs. All models are searched in the same runs, with the same random numbers at
// every point. Then loads are lowered until all attain their shares together. If MinLoads cannot be reached, all
// loads are 0.
func FindModelLoads(ctx context.Context, sc *Scenario, o ModelLoadSearch) (*ModelLoads, error) {
	s := &pointSimulator{scenario: sc, rates: sc.modelRates(), grid: LoadGrid{o.Step}, resultsByPoints: map[string][]*Result{}}
	brackets, err := o.startBrackets(ctx, s)
	if brackets == nil || err != nil {
		return &ModelLoads{Loads: make([]float64, len(s.rates)), Events: s.events}, err
	}
	points, err := o.closeBrackets(ctx, s, brackets)
	if err != nil {
		return nil, err
	}
	return o.lowerUntilJoint(ctx, s, points)
}

// startBrackets returns the bracket (highest load that passes, lowest that fails) of every model, with its first
// candidate to simulate. If the search must reach MinLoads and a model fails there, it returns nil.
func (o *ModelLoadSearch) startBrackets(ctx context.Context, s *pointSimulator) ([]guidedBracket, error) {
	maxPoint := s.grid.NearestNumber(o.MaxLoad)
	guessOf := func(model int) int {
		if o.StartLoads == nil {
			return min(s.grid.NearestNumber(1), maxPoint)
		}
		return min(s.grid.NearestNumber(o.StartLoads[model]), maxPoint)
	}
	brackets := make([]guidedBracket, len(s.rates))
	for i := range brackets {
		brackets[i].gridBracket = gridBracket{candidate: guessOf(i), lowestFail: maxPoint + 1}
	}

	// Begin above the loads that must be reached, if there are any.
	if o.MinLoads != nil {
		points, result, err := o.checkMinLoads(ctx, s, maxPoint)
		if result == nil || err != nil {
			return nil, err
		}
		for i := range brackets {
			b := &brackets[i]
			b.candidate = points[i]
			b.observeLoss(true, o.lossRatio(result, i), o.Step)
			if o.StartLoads != nil && b.candidate < b.lowestFail {
				b.candidate = max(b.candidate, guessOf(i))
			}
		}
	}

	// With one load for all models, start at the lowest.
	if o.SameLoad {
		lowest := slices.MinFunc(brackets, func(a, b guidedBracket) int { return cmp.Compare(a.candidate, b.candidate) })
		for i := range brackets {
			brackets[i].candidate = lowest.candidate
		}
	}
	return brackets, nil
}

// closeBrackets simulates the candidates of all models together until every model's bracket (highest load that
// passes, lowest that fails) is closed. It returns the highest point of the grid that passes, for each model, at
// least 1.
func (o *ModelLoadSearch) closeBrackets(ctx context.Context, s *pointSimulator, brackets []guidedBracket) ([]int, error) {
	points := make([]int, len(brackets))
	for {
		// A search that is done stays at its result.
		anyOpen := false
		for i := range brackets {
			if b := &brackets[i]; b.isClosed() {
				points[i] = max(1, b.highestPass)
			} else {
				points[i], anyOpen = b.candidate, true
			}
		}
		if !anyOpen {
			return points, nil
		}

		// Simulate all models at once. With one load for all, a failure of one fails all.
		result, err := s.simulate(ctx, points, o.Runs)
		if err != nil {
			return nil, err
		}
		allPass := result.allAttain(o.Shares)
		for i := range brackets {
			if !brackets[i].isClosed() {
				pass := allPass || !o.SameLoad && result.attainments[i] >= o.Shares[i]
				brackets[i].observeLoss(pass, o.lossRatio(result, i), o.Step)
			}
		}
	}
}

// modelRates returns the requests per second of every model at load 1.
func (s *Scenario) modelRates() []float64 {
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
	scaled := *s
	scaled.Load, scaled.Rates = 1, rates
	if stretch := sum(s.modelRates()) / sum(rates); stretch > 1 && s.RecordedArrivals == nil && longest > s.Duration {
		scaled.Duration = min(longest, time.Duration(stretch*float64(s.Duration))).Round(time.Millisecond)
		scaled.Warmup = time.Duration(float64(s.Warmup) * float64(scaled.Duration) / float64(s.Duration))
	}
	return &scaled
}

// pointSimulator simulates the models of a scenario, each at a point of the grid.
type pointSimulator struct {
	scenario        *Scenario
	rates           []float64 // by model, at load 1
	grid            LoadGrid
	resultsByPoints map[string][]*Result // earlier runs, by the text of the points
	events          int64                // of all runs
}

// simulate returns the result of numRuns runs with each model at its point of the grid of loads. Runs that were
// made earlier at the same points are reused.
func (s *pointSimulator) simulate(ctx context.Context, points []int, numRuns int) (*pointResult, error) {
	key := fmt.Sprint(points)
	earlier := s.resultsByPoints[key]
	if len(earlier) >= numRuns {
		return newPointResult(earlier[:numRuns], len(s.rates)), nil
	}
	offeredRates := make([]float64, len(s.rates))
	for i := range s.rates {
		offeredRates[i] = s.rates[i] * s.grid.Load(points[i])
	}
	results, err := s.scenario.AtRates(offeredRates, 0).replicate(ctx, earlier, numRuns)
	if err != nil {
		return nil, err
	}
	for _, run := range results[len(earlier):] {
		s.events += run.Events
	}
	s.resultsByPoints[key] = results
	return newPointResult(results, len(s.rates)), nil
}

// pointResult holds runs at the same points. A search needs the attainments, and a report only
// in the end, because its percentiles take long.
type pointResult struct {
	results     []*Result
	attainments []float64 // by model
}

// newPointResult returns the result of simulated runs with the attainment (share of requests in time) of every
// model over all of them.
func newPointResult(results []*Result, models int) *pointResult {
	s := &pointResult{results: results, attainments: make([]float64, models)}
	accs := accumulators(results)
	for m := range s.attainments {
		s.attainments[m] = report.Attained(accs, m)
	}
	return s
}

// allAttain returns whether all models attain their shares.
func (s *pointResult) allAttain(shares []float64) bool {
	for i := range s.attainments {
		if s.attainments[i] < shares[i] {
			return false
		}
	}
	return true
}

// lossRatio returns the share of requests that a model loses, divided by the share that it may
// lose. With SameLoad it is the largest of all models.
func (o *ModelLoadSearch) lossRatio(result *pointResult, model int) float64 {
	lossOf := func(i int) float64 { return (1 - result.attainments[i]) / max(1-o.Shares[i], minAllowedLoss) }
	maxLoss := lossOf(model)
	for i := range result.attainments {
		if o.SameLoad {
			maxLoss = max(maxLoss, lossOf(i))
		}
	}
	return maxLoss
}

// Constants of the search.
const (
	minAllowedLoss = 1e-4    // share of requests that every model may lose, for the division
	minLossRatio   = 1.0 / 8 // loss ratios below it are taken as equal to it
	lossGrowth     = 25      // assumed slope of log(loss ratio) over the load
)

// guidedBracket is a gridBracket that chooses its candidates by the losses at both ends. Near
// the highest passing point the logarithm of the loss grows linearly with the load.
type guidedBracket struct {
	gridBracket
	logLoss [2]float64 // log of the loss ratio at highestPass and at lowestFail; it is 0 at the allowed loss
}

// observeLoss takes in the result of the candidate and chooses the next one. loss is the lost share of requests
// over what may be lost: 1 is just at the limit. Its logarithm grows about linearly with the load, so the next
// candidate is interpolated. If the last interpolation narrowed the bracket by less than half, the next step
// bisects.
func (b *guidedBracket) observeLoss(pass bool, loss, step float64) {
	logLoss, previousGap := math.Log(max(loss, minLossRatio)), b.lowestFail-b.highestPass
	if pass {
		b.logLoss[0] = min(logLoss, 0)
	} else {
		b.logLoss[1] = max(logLoss, 0)
	}
	bothSeen := b.seenEnds[0] && b.seenEnds[1]
	b.observe(pass)
	switch gap := b.lowestFail - b.highestPass; {
	case b.isClosed():
	case !b.seenEnds[0] || !b.seenEnds[1]:
		// Only one end was seen: go as far as the slope says.
		steps := math.Abs(logLoss) / (lossGrowth * step)
		if pass {
			b.candidate = min(b.highestPass+max(1, b.step/2, int(steps)), b.lowestFail-1)
		} else {
			b.candidate = max(b.lowestFail-max(1, b.step/2, int(math.Ceil(steps))), b.highestPass+1)
		}
	case !bothSeen || 2*gap <= previousGap+1:
		// Both were seen: interpolate linearly to a loss ratio of 1.
		share := -b.logLoss[0] / max(b.logLoss[1]-b.logLoss[0], 1e-9)
		b.candidate = b.highestPass + min(max(1, int(float64(gap)*share)), gap-1)
	}
}

// checkMinLoads simulates the loads that must be reached. It returns their points and result,
// or no result if a model fails. The first run alone decides if a model loses more in it than
// it may lose in all runs.
func (o *ModelLoadSearch) checkMinLoads(ctx context.Context, s *pointSimulator, maxPoint int) (points []int, result *pointResult, err error) {
	for _, load := range o.MinLoads {
		points = append(points, max(1, int(s.grid.Position(load)+1e-9)))
	}

	// The points of the grid at or below these loads.
	if o.SameLoad {
		for i, maxNumber := 0, slices.Max(points); i < len(points); i++ {
			points[i] = maxNumber
		}
	}
	if slices.Max(points) > maxPoint {
		return nil, nil, nil
	}

	// Simulate one run with what all runs may lose, then all runs.
	for _, numRuns := range slices.Compact([]int{1, o.Runs}) {
		r, err := s.simulate(ctx, points, numRuns)
		if err != nil {
			return nil, nil, err
		}
		shares := slices.Clone(o.Shares)
		for i, share := range shares {
			shares[i] = 1 - (1-share)*float64(o.Runs)/float64(numRuns)
		}
		if !r.allAttain(shares) {
			return nil, nil, nil
		}
		result = r
	}
	return points, result, nil
}

// lowerUntilJoint lowers loads that were found one by one until all models attain their shares together, because
// models on the same devices disturb each other. Each round lowers the models that fail, by steps that double every
// second round.
func (o *ModelLoadSearch) lowerUntilJoint(ctx context.Context, s *pointSimulator, points []int) (*ModelLoads, error) {
	found := &ModelLoads{Loads: make([]float64, len(points))}
	for round := 0; ; round++ {
		r, err := s.simulate(ctx, points, o.Runs)
		if err != nil {
			return nil, err
		}

		// Lower the models that fail.
		allHold, lowered := true, false
		for i := range points {
			if r.attainments[i] >= o.Shares[i] {
				continue
			}
			allHold = false
			if points[i] > 1 {
				points[i] = max(1, points[i]-1<<(round/2))
				lowered = true
			}
		}

		// Stop if all hold, or no model can be lowered.
		if allHold {
			for i := range points {
				found.Loads[i] = s.grid.Load(points[i])
			}
			found.Report = poolResults(r.results).Report
		}
		if !lowered {
			found.Events = s.events
			return found, nil
		}
	}
}
