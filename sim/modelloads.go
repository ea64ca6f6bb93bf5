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
	// of the runs at these loads; nil if some model has no load
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

// LoadGrid numbers load factors from 1. From a half on they lie a step apart. Below a half each is larger than the
// one before by the factor 1 + 2*Step, so that small loads are found with the same relative accuracy as large ones.
// The first load is about one step.
type LoadGrid struct{ Step float64 }

// halfNumber returns the number that the load 0.5 has on the grid: 1 + k, where k is the number of times that 0.5 can be
// divided by 1 + 2*Step without falling below Step.
func (g LoadGrid) halfNumber() float64 {
	return 1 + math.Floor(math.Log(0.5/g.Step)/math.Log1p(2*g.Step))
}

// Load returns the load factor with a number: with d = number - halfNumber, it is 0.5 + d*Step from 0.5 on, and
// 0.5 * (1 + 2*Step)^d below.
func (g LoadGrid) Load(number int) float64 {
	pointsAboveHalf := float64(number) - g.halfNumber()
	if pointsAboveHalf >= 0 {
		return 0.5 + pointsAboveHalf*g.Step
	}
	return 0.5 * math.Pow(1+2*g.Step, pointsAboveHalf)
}

// Position returns the number that a load factor has on the grid, with a fraction if it lies between two points. For
// loads below the grid it returns 0.
func (g LoadGrid) Position(load float64) float64 {
	if load >= 0.5 {
		return g.halfNumber() + (load-0.5)/g.Step
	}
	return max(0, g.halfNumber()+math.Log(load/0.5)/math.Log1p(2*g.Step))
}

// NearestNumber returns the number, at least 1, of the point of the grid that is nearest to a load factor.
func (g LoadGrid) NearestNumber(load float64) int { return max(1, int(math.Round(g.Position(load)))) }

// FindModelLoads searches for the highest load of every model at which the model attains its share of requests in
// time while the others have theirs. All models are searched in the same runs, with the same random numbers at
// every point. Then loads are lowered until all attain their shares together. If MinLoads cannot be reached, all
// loads are 0.
func FindModelLoads(ctx context.Context, scenario *Scenario, search ModelLoadSearch) (*ModelLoads, error) {
	simulator := &pointSimulator{scenario: scenario, rates: scenario.modelRates(), grid: LoadGrid{search.Step}, resultsByPoints: map[string][]*Result{}}
	brackets, err := search.startBrackets(ctx, simulator)
	if brackets == nil || err != nil {
		return &ModelLoads{Loads: make([]float64, len(simulator.rates)), Events: simulator.events}, err
	}
	points, err := search.closeBrackets(ctx, simulator, brackets)
	if err != nil {
		return nil, err
	}
	return search.lowerUntilAllAttain(ctx, simulator, points)
}

// startBrackets returns for every model the bracket (highest point that passes, lowest that fails) of its search,
// with the first candidate to simulate. If the search must reach MinLoads and a model fails there, it returns nil.
func (o *ModelLoadSearch) startBrackets(ctx context.Context, simulator *pointSimulator) ([]guidedBracket, error) {
	maxPoint := simulator.grid.NearestNumber(o.MaxLoad)
	guessOf := func(model int) int {
		if o.StartLoads == nil {
			return min(simulator.grid.NearestNumber(1), maxPoint)
		}
		return min(simulator.grid.NearestNumber(o.StartLoads[model]), maxPoint)
	}
	brackets := make([]guidedBracket, len(simulator.rates))
	for model := range brackets {
		brackets[model].gridBracket = gridBracket{candidate: guessOf(model), lowestFail: maxPoint + 1}
	}

	// If there are loads that must be reached, begin above them. Without a result some model fails at them, and the search
	// ends. Otherwise enter into each bracket that its point of MinLoads passed, and with which loss: observeLoss takes
	// the bracket's candidate as the point that was simulated, and sets the next one. The next one is at least the
	// caller's guess.
	if o.MinLoads != nil {
		points, minResult, err := o.checkMinLoads(ctx, simulator, maxPoint)
		if minResult == nil || err != nil {
			return nil, err
		}
		for model := range brackets {
			bracket := &brackets[model]
			bracket.candidate = points[model]
			bracket.observeLoss(true, o.lossRatio(minResult, model), o.Step)
			if o.StartLoads != nil && bracket.candidate < bracket.lowestFail {
				bracket.candidate = max(bracket.candidate, guessOf(model))
			}
		}
	}

	// With one load for all models, start at the lowest.
	if o.SameLoad {
		lowestBracket := slices.MinFunc(brackets, func(first, second guidedBracket) int { return cmp.Compare(first.candidate, second.candidate) })
		for model := range brackets {
			brackets[model].candidate = lowestBracket.candidate
		}
	}
	return brackets, nil
}

// closeBrackets simulates the candidates of all models together until every model's bracket (highest point that
// passes, lowest that fails) is closed. It returns for each model the highest point of the grid that passes, at least
// 1.
func (o *ModelLoadSearch) closeBrackets(ctx context.Context, simulator *pointSimulator, brackets []guidedBracket) ([]int, error) {
	points := make([]int, len(brackets))
	for {
		// A search that is done stays at its result.
		anyOpen := false
		for model := range brackets {
			if bracket := &brackets[model]; bracket.isClosed() {
				points[model] = max(1, bracket.highestPass)
			} else {
				points[model], anyOpen = bracket.candidate, true
			}
		}
		if !anyOpen {
			return points, nil
		}

		// Simulate all models at once. With one load for all, a failure of one fails all.
		result, err := simulator.simulate(ctx, points, o.Runs)
		if err != nil {
			return nil, err
		}
		allPass := result.allAttain(o.Shares)
		for model := range brackets {
			if !brackets[model].isClosed() {
				pass := allPass || !o.SameLoad && result.attainments[model] >= o.Shares[model]
				brackets[model].observeLoss(pass, o.lossRatio(result, model), o.Step)
			}
		}
	}
}

// modelRates returns the requests per second of every model at load factor 1: the scenario's own rates, or else the
// planned ones.
func (scenario *Scenario) modelRates() []float64 {
	if scenario.Rates != nil {
		return scenario.Rates
	}
	var rates []float64
	for i := range scenario.Tables.Models {
		rates = append(rates, scenario.Tables.Models[i].RPS)
	}
	return rates
}

// AtRates returns the scenario with other rates (requests per second of every model) at load 1. If their sum is lower
// and arrivals are drawn, its runs last longer, so that they have as many requests, but not longer than `longest`; the
// warm-up grows with them. With longest 0 they last as long as before.
func (scenario *Scenario) AtRates(rates []float64, longest time.Duration) *Scenario {
	sum := func(list []float64) (rps float64) {
		for _, rate := range list {
			rps += rate
		}
		return rps
	}
	scaled := *scenario
	scaled.Load, scaled.Rates = 1, rates
	if rateRatio := sum(scenario.modelRates()) / sum(rates); rateRatio > 1 && scenario.RecordedArrivals == nil && longest > scenario.Duration {
		scaled.Duration = min(longest, time.Duration(rateRatio*float64(scenario.Duration))).Round(time.Millisecond)
		scaled.Warmup = time.Duration(float64(scenario.Warmup) * float64(scaled.Duration) / float64(scenario.Duration))
	}
	return &scaled
}

// pointSimulator simulates the models of a scenario together, each at a point of the grid of load factors.
type pointSimulator struct {
	scenario        *Scenario
	rates           []float64 // by model, at load 1
	grid            LoadGrid
	resultsByPoints map[string][]*Result // earlier runs, by the text of the points
	events          int64                // of all runs
}

// simulate returns the result of numRuns runs with each model at its point of the grid of load factors. Runs that were
// made earlier at the same points are reused. Points are numbers of the grid, by model. The events of new runs are added
// to s.events.
func (s *pointSimulator) simulate(ctx context.Context, points []int, numRuns int) (*pointResult, error) {
	pointsText := fmt.Sprint(points)
	earlier := s.resultsByPoints[pointsText]
	if len(earlier) >= numRuns {
		return newPointResult(earlier[:numRuns], len(s.rates)), nil
	}

	// Make the runs that are missing, at each model's own rate.
	offeredRates := make([]float64, len(s.rates))
	for model := range s.rates {
		offeredRates[model] = s.rates[model] * s.grid.Load(points[model])
	}
	results, err := s.scenario.AtRates(offeredRates, 0).replicate(ctx, earlier, numRuns)
	if err != nil {
		return nil, err
	}
	for _, run := range results[len(earlier):] {
		s.events += run.Events
	}
	s.resultsByPoints[pointsText] = results
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
	result := &pointResult{results: results, attainments: make([]float64, models)}
	accumulators := accumulators(results)
	for model := range result.attainments {
		result.attainments[model] = report.Attained(accumulators, model)
	}
	return result
}

// allAttain reports whether every model attains its share of requests in time in these runs.
func (s *pointResult) allAttain(shares []float64) bool {
	for i := range s.attainments {
		if s.attainments[i] < shares[i] {
			return false
		}
	}
	return true
}

// lossRatio returns the share of requests that a model loses (late or dropped) in a result, divided by the share that it
// may lose. A model attains its share of requests in time if the ratio is at most 1. With SameLoad (one load for all
// models) it returns the largest ratio of all models.
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
	lossGrowth     = 25      // assumed growth of log(loss ratio) when the load factor grows by 1
)

// guidedBracket is a gridBracket that chooses its candidates by the losses at both ends. Near the highest passing
// point the logarithm of the loss grows linearly with the load.
type guidedBracket struct {
	gridBracket
	passLogLoss, failLogLoss float64 // log of the loss ratio at highestPass and at lowestFail; it is 0 at the allowed loss
}

// observeLoss takes in whether the candidate, a point of the grid of loads, passed and what it lost, and chooses the
// next candidate. loss is the lost share of requests over the share that may be lost: 1 is just at the limit. Its
// logarithm grows about linearly with the load, so the next candidate is interpolated between the two ends of the
// bracket, by the logarithms there: passLogLoss (at most 0) and failLogLoss (at least 0). If the latest candidate
// narrowed the bracket by less than half, the middle is next, which b.observe has chosen already. While only one end
// was seen, the next candidate is as far from that as the loss says: lossGrowth is by how much the logarithm is assumed
// to grow per unit of load, and gridStep is the load between two points of the grid.
func (b *guidedBracket) observeLoss(pass bool, loss, gridStep float64) {
	logLoss, previousGap := math.Log(max(loss, minLossRatio)), b.lowestFail-b.highestPass
	if pass {
		b.passLogLoss = min(logLoss, 0)
	} else {
		b.failLogLoss = max(logLoss, 0)
	}
	hadBothEnds := b.anyPassed && b.anyFailed // before this candidate
	b.observe(pass)                           // the next candidate is its choice, unless another one is chosen below
	gap := b.lowestFail - b.highestPass
	narrowedByHalf := 2*gap <= previousGap+1
	switch {
	case b.isClosed(): // no candidate is needed
	case !b.anyPassed || !b.anyFailed:
		// Only one end was seen: go as many points as the slope says, at least half of what observe would (b.step points).
		points := math.Abs(logLoss) / (lossGrowth * gridStep)
		if pass {
			b.candidate = min(b.highestPass+max(1, b.step/2, int(points)), b.lowestFail-1)
		} else {
			b.candidate = max(b.lowestFail-max(1, b.step/2, int(math.Ceil(points))), b.highestPass+1)
		}
	case !hadBothEnds || narrowedByHalf:
		// Both ends were seen: interpolate linearly to a loss ratio of 1, whose logarithm is 0.
		share := -b.passLogLoss / max(b.failLogLoss-b.passLogLoss, 1e-9)
		b.candidate = b.highestPass + min(max(1, int(float64(gap)*share)), gap-1)
	}
}

// checkMinLoads simulates the loads that must be reached (MinLoads). It returns the points of the grid at or below them,
// by model, and the result of all runs; if a model loses more requests than it may, or a point is above maxPoint, it
// returns nil. A single run goes first, because it can refute the loads at less cost: it does so if a model loses more
// requests in it than the model may lose in all runs together.
func (o *ModelLoadSearch) checkMinLoads(ctx context.Context, simulator *pointSimulator, maxPoint int) (points []int, result *pointResult, err error) {
	// The points of the grid at or below these loads. The small term keeps a load that is a point from the one below.
	for _, load := range o.MinLoads {
		points = append(points, max(1, int(simulator.grid.Position(load)+1e-9)))
	}

	// With one load for all models it is the highest of them.
	if o.SameLoad {
		maxNumber := slices.Max(points)
		for i := range points {
			points[i] = maxNumber
		}
	}
	if slices.Max(points) > maxPoint {
		return nil, nil, nil
	}

	// Simulate one run, then all runs. In the one run a model may lose as many requests as in all runs together, which is
	// o.Runs times the share.
	for _, numRuns := range slices.Compact([]int{1, o.Runs}) {
		runResult, err := simulator.simulate(ctx, points, numRuns)
		if err != nil {
			return nil, nil, err
		}
		shares := slices.Clone(o.Shares)
		for i, share := range shares {
			shares[i] = 1 - (1-share)*float64(o.Runs)/float64(numRuns)
		}
		if !runResult.allAttain(shares) {
			return nil, nil, nil
		}
		result = runResult
	}
	return points, result, nil
}

// lowerUntilAllAttain lowers the points of models, which were found one by one, until all models attain their shares
// together, because models on the same devices disturb each other. Each round lowers the models that fail, by steps that
// double every second round. If no model can be lowered further, it returns loads of 0. points, the numbers of the
// models' loads on the grid, is changed.
func (o *ModelLoadSearch) lowerUntilAllAttain(ctx context.Context, simulator *pointSimulator, points []int) (*ModelLoads, error) {
	found := &ModelLoads{Loads: make([]float64, len(points))}
	for round := 0; ; round++ {
		result, err := simulator.simulate(ctx, points, o.Runs)
		if err != nil {
			return nil, err
		}

		// Lower the models that fail.
		allAttain, lowered := true, false
		for model := range points {
			if result.attainments[model] >= o.Shares[model] {
				continue
			}
			allAttain = false
			if points[model] > 1 {
				points[model] = max(1, points[model]-1<<(round/2))
				lowered = true
			}
		}

		// Stop if all hold, or no model can be lowered.
		if allAttain {
			for model := range points {
				found.Loads[model] = simulator.grid.Load(points[model])
			}
			found.Report = poolResults(result.results).Report
		}
		if !lowered {
			found.Events = simulator.events
			return found, nil
		}
	}
}
