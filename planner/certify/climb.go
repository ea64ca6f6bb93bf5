package certify

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/sim"
	"inferplan/solver/stoch"
)

const (
	// Step is the step of the grid of loads, and the lowest load.
	Step = 0.01

	confidence    = .95       // of the statement that a plan sustains its rates
	maxLooks      = 3         // looks of a sequential test
	confirmFactor = 2         // runs of a confirmation in multiples of those of a search
	partBudget    = 3_000_000 // events that SustainedPart simulates after a load has passed

	// maxFrontEndLoad is the largest share of the time in which the front end may be occupied. Nothing is refused there,
	// so above its rate the requests that wait become more and more, and a short run shows few of them late.
	maxFrontEndLoad = .98
)

// Confirm tests every model at a load, in multiples of its promised rate. A model has to attain its
// share of requests in time, alone or together with the models that Plan.AttainmentGroups lists with it.
//
// It is a sequential test. After every few runs, one-sided Student intervals over the runs are
// computed at a confidence of .95. A model has passed if the lower end is at least its share. It has
// failed if the upper end is below its share or the mean is not above it, or if it has not passed
// after the last look. All models fail if the front end is occupied nearly all the time. Confirm returns the result of all runs, and for every model whether it failed.
func (t *Test) Confirm(ctx context.Context, loads []float64) (*sim.Result, []bool, error) {
	return t.confirmWith(ctx, loads, confirmFactor*t.runsPerLook)
}

// confirmWith tests the models at the given loads (multiples of their promised rates) and returns the result of all runs,
// and by model whether it failed. It simulates runsPerLook runs and as many more until all models are decided, maxLooks
// times at most. After each time it compares, for each model, the confidence interval of its mean share of requests in
// time with the share that it needs: a model whose lower end is below that share has failed, or is undecided if its mean
// is above the share. It notes the number and the length of the runs in t.Settings.
func (t *Test) confirmWith(ctx context.Context, loads []float64, runsPerLook int) (*sim.Result, []bool, error) {
	replications := &sim.Replications{Scenario: t.scenarioAt(loads)}
	t.Settings.Duration = replications.Scenario.Duration
	for looks := 1; ; looks++ {
		t.Settings.Runs = looks * runsPerLook
		if err := replications.Extend(ctx, t.Settings.Runs); err != nil {
			return nil, nil, fmt.Errorf("certifying: %w", err)
		}

		// Decide for all models, group by group: the models of a group are judged together by one share, and pass or fail together.
		failed, undecided := make([]bool, len(loads)), false
		for _, models := range t.plan.AttainmentGroups() {
			share := t.Shares[models[0]]
			mean, halfWidth := stoch.OneSidedMean(replications.AttainmentPerRun(models...), confidence)
			belowShare := mean-halfWidth < share
			for _, i := range models {
				failed[i] = belowShare
			}
			// With a mean above the share, more runs may narrow the interval so far that the group passes. Until then it counts as failed.
			undecided = undecided || belowShare && mean > share
		}
		if replications.FrontEndLoad() > maxFrontEndLoad {
			return replications.Pool(), slices.Repeat([]bool{true}, len(loads)), nil
		}
		if !undecided || looks == maxLooks {
			return replications.Pool(), failed, nil
		}
	}
}

// scenarioAt returns the scenario with each model at a load, in multiples of its promised rate.
func (t *Test) scenarioAt(loads []float64) *sim.Scenario {
	rates := lists.Map(len(loads), func(i int) float64 { return t.Scenario.Tables.Models[i].RPS * loads[i] })
	return t.Scenario.AtRates(rates, t.maxDuration)
}

// LoadClimb searches for the highest loads of models that pass the test.
type LoadClimb struct {
	StartLoads []float64 // tested first
	MaxLoads   []float64 // by model: the load that its replicas carry; the search stays below it
	SameLoad   bool      // all models have the same load: one with too much load makes the others fail
	// StopAtFirstFailure ends the search if the first loads do not pass. HalveUntilPass halves
	// the loads until some pass.
	StopAtFirstFailure, HalveUntilPass bool
	// MaxEvents is how many events the search may simulate once some loads passed.
	MaxEvents int64
	// Events is how many events it simulated.
	Events int64

	// A number is that of a load in the grid of loads. Number 1 is the lowest load.
	candidates   []int  // by model: number of the load that is tested next
	lastPassed   []int  // the last numbers that passed, or nil
	lowestFailed []int  // by model: the lowest number at which it failed, or the first one that is not tested
	hasFailed    []bool // by model: whether it failed at all
	stride       []int  // by model: step to the next number until some loads passed and some failed; it doubles
}

var grid = sim.LoadGrid{Step: Step} // grid has the loads of all searches.

// NextLowerLoad returns the next lower load of the grid of loads that are tried, or 0 if there is none.
func NextLowerLoad(load float64) float64 {
	if number := grid.NearestNumber(load) - 1; number > 0 {
		return grid.Load(number)
	}
	return 0
}

// Run searches for the highest loads (factors on the planned rates) that pass the test, and returns them with the
// result there. Models that fail get less load. If all pass, each gets more: in doubling steps until it fails,
// then by bisection.
//
// The highest of many loads passes by luck more often than a single one. So other random numbers must confirm it,
// or a lower load. Run returns nil if no loads pass. If the budget covers no more than the confirmation, there is
// no search: the confirmation begins with the last loads that passed, or else with the next candidates.
func (c *LoadClimb) Run(ctx context.Context, t *Test) ([]float64, *sim.Result, error) {
	// Search, with random numbers other than those of the confirmation. candidates has, by model, the number of its load in
	// the grid; the search ends once one would be below 1, the number of the lowest load. It also ends if the budget does
	// not allow another test, of a look's runs, and a confirmation, of confirmFactor times as many. If no loads have passed
	// then, the candidates are confirmed without a test.
	c.startSearch()
	seed := t.Scenario.Seed
	t.Scenario.Seed = seeded.Seed(seed, "climb")
	defer func() { t.Scenario.Seed = seed }()
	for slices.Min(c.candidates) >= 1 {
		if t.scenarioAt(c.loadsOf(c.candidates)).CheckBudget((1+confirmFactor)*t.runsPerLook) != nil {
			if c.lastPassed == nil {
				c.lastPassed = slices.Clone(c.candidates)
			}
			break
		}
		result, failed, err := t.confirmWith(ctx, c.loadsOf(c.candidates), t.runsPerLook)
		if err != nil {
			return nil, nil, err
		}
		c.Events += result.Events
		if slices.Contains(failed, true) && c.lastPassed == nil && c.StopAtFirstFailure {
			return nil, nil, nil
		}
		searchIsOver := !c.advance(failed)
		budgetIsUsed := c.lastPassed != nil && c.Events > c.MaxEvents
		if searchIsOver || budgetIsUsed {
			break
		}
	}

	// Confirm with the scenario's random numbers. Loads that fail are lowered by a step.
	t.Scenario.Seed = seed
	for numbers := c.lastPassed; numbers != nil && slices.Min(numbers) >= 1; {
		loads := c.loadsOf(numbers)
		result, failed, err := t.Confirm(ctx, loads)
		if err != nil {
			return nil, nil, err
		}
		c.Events += result.Events
		if !slices.Contains(failed, true) {
			return loads, result, nil
		}
		for i := range numbers {
			if failed[i] || c.SameLoad {
				numbers[i]--
			}
		}
	}
	return nil, nil, nil
}

// SustainedPart returns the highest part of a plan's rates, at most 1 and the same for all models, that passes the
// simulation test. If none passes, it returns 0. It makes a plan that was never simulated comparable with one
// whose rates were tested.
func SustainedPart(ctx context.Context, plan *formats.Plan, settings kind.TestSettings) (float64, error) {
	t, err := NewTest(plan, settings)
	if err != nil {
		return 0, err
	}
	t.Scenario.Budget = NewBudgets(settings, 2).Tests // twice the usual: no search for the plan has used its part
	ones := slices.Repeat([]float64{1}, len(t.Shares))
	c := &LoadClimb{StartLoads: ones, MaxLoads: ones, SameLoad: true, MaxEvents: partBudget}
	loads, _, err := c.Run(ctx, t)
	if loads == nil {
		return 0, err
	}
	return loads[0], err
}

// startSearch prepares a search for the highest loads: by model, the first candidate is the start load's number in the
// grid of loads, and the number above the largest allowed load counts as the lowest that fails, as if it had been
// tried. With SameLoad the smallest of the largest loads holds for all models.
func (c *LoadClimb) startSearch() {
	n := len(c.StartLoads)
	c.candidates, c.lowestFailed, c.stride, c.hasFailed = make([]int, n), make([]int, n), make([]int, n), make([]bool, n)
	for i, load := range c.StartLoads {
		maxLoad := c.MaxLoads[i]
		if c.SameLoad {
			maxLoad = slices.Min(c.MaxLoads)
		}
		highest := int(math.Ceil(grid.Position(maxLoad) - 1e-9)) // 1e-9 takes off errors of rounding
		c.candidates[i], c.lowestFailed[i], c.stride[i] = min(grid.NearestNumber(load), highest), highest+1, 1
	}
}

// loadsOf returns the loads that have the given numbers in the grid, each at most what the model's replicas carry
// without queueing.
func (c *LoadClimb) loadsOf(numbers []int) []float64 {
	return lists.Filled(len(numbers), func(i int) float64 { return min(grid.Load(numbers[i]), c.MaxLoads[i]) })
}

// advance chooses the next candidates, as numbers in the grid of loads, after a test of the current ones. failed
// says which models failed. It returns false when the search is over: the next candidates are those that passed last,
// or no higher loads can pass. A candidate of 0 ends the search in Run.
func (c *LoadClimb) advance(failed []bool) bool {
	// All passed: go up, in doubling steps, or halfway to the lowest failure.
	if !slices.Contains(failed, true) {
		c.lastPassed = slices.Clone(c.candidates)
		for i := range c.candidates {
			remaining := c.lowestFailed[i] - 1 - c.candidates[i]
			if c.hasFailed[i] {
				c.candidates[i] += (remaining + 1) / 2
				continue
			}
			c.candidates[i] += min(c.stride[i], remaining)
			c.stride[i] *= 2
		}
		return !slices.Equal(c.candidates, c.lastPassed)
	}

	// Some failed: those models go down (with SameLoad all do), in doubling steps until some loads have passed, by
	// halves with HalveUntilPass, and afterwards halfway to the loads that passed. Without SameLoad, models that did not
	// fail keep their load until some loads have passed.
	for i := range c.candidates {
		if c.SameLoad || failed[i] {
			if c.lastPassed != nil && c.candidates[i] <= c.lastPassed[i] {
				return false // the model passed at this load before, so the others' higher loads took its capacity
			}
			c.lowestFailed[i], c.hasFailed[i] = c.candidates[i], true
		}
		switch {
		case c.lastPassed == nil && c.HalveUntilPass:
			c.candidates[i] = int(grid.Position(grid.Load(c.candidates[i])/2) + 1e-9) // 1e-9 makes up for errors of rounding
		case !c.SameLoad && !failed[i]:
		case c.lastPassed == nil:
			// Number 1, the lowest load, is tried before number 0, which ends the search: a step from above 1 ends at 1 at the lowest.
			lowest := min(1, c.candidates[i]-1)
			c.candidates[i] = max(lowest, c.candidates[i]-c.stride[i])
			c.stride[i] *= 2
		default:
			c.candidates[i] = (c.lastPassed[i] + c.candidates[i]) / 2
		}
	}
	return !slices.Equal(c.candidates, c.lastPassed)
}
