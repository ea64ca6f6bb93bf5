package certify

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/planner/kind"
	"inferplan/sim"
	"inferplan/solver/stoch"
)

const (
	// Step is the step of the grid of loads, and the lowest load.
	Step = 0.01

	confidence = .95       // of the statement that a plan sustains its rates
	mostLooks  = 3         // looks of a sequential test
	thorough   = 2         // runs of a confirmation in multiples of those of a search
	partBudget = 3_000_000 // events that SustainedPart simulates after a load has passed
)

// Confirm tests every model at a load, in multiples of its promised rate. A model has to attain its
// share of requests in time, alone or together with the models that Plan.Pooled lists with it.
//
// It is a sequential test. After every few runs, one-sided Student intervals over the runs are
// computed at a confidence of .95. A model has passed if the lower end is at least its share. It has
// failed if the upper end is below its share or the mean is not above it, or if it has not passed
// after the last look. Confirm returns the result of all runs, and for every model whether it failed.
func (t *Test) Confirm(ctx context.Context, loads []float64) (*sim.Result, []bool, error) {
	return t.confirm(ctx, loads, thorough*t.runs)
}

// confirmWith is Confirm with a given number of runs before each look.
func (t *Test) confirm(ctx context.Context, loads []float64, between int) (*sim.Result, []bool, error) {
	runs := &sim.Replications{Scenario: t.at(loads)}
	t.Asked.Duration = runs.Scenario.Duration
	for looks := 1; ; looks++ {
		t.Asked.Runs = looks * between
		if err := runs.Extend(ctx, t.Asked.Runs); err != nil {
			return nil, nil, fmt.Errorf("certifying: %w", err)
		}

		// Decide for all models; some may need more runs.
		short, open := make([]bool, len(loads)), false
		for _, pooled := range t.plan.Pooled() {
			share := t.Shares[pooled[0]]
			mean, half := stoch.OneSided(runs.Attained(pooled...), confidence)
			for _, i := range pooled {
				short[i] = mean-half < share
			}
			open = open || mean-half < share && mean+half >= share && mean > share
		}
		if !open || looks == mostLooks {
			return runs.Pool(), short, nil
		}
	}
}

// scenarioAt returns the scenario with each model at a load, in multiples of its promised rate.
func (t *Test) at(loads []float64) *sim.Scenario {
	var rates []float64
	for i, load := range loads {
		rates = append(rates, t.Scenario.Tables.Models[i].RPS*load)
	}
	return t.Scenario.AtRates(rates, t.longest)
}

// LoadClimb searches for the highest loads of models that pass the test.
type Climb struct {
	From     []float64 // tested first
	Carried  []float64 // by model: the load that its replicas carry; the search stays below it
	Together bool      // all models have the same load: one with too much load makes the others fail
	// StopAtFirstFailure ends the search if the first loads do not pass. HalveUntilPass halves
	// the loads until some pass.
	Once, Halve bool
	// MaxEvents is how many events the search may simulate once some loads passed.
	Work int64
	// Events is how many events it simulated.
	Events int64

	at     []int  // by model: grid number of the load that is tested next
	passed []int  // the last numbers that passed, or nil
	above  []int  // by model: the lowest number at which it failed, or the first one that is not tested
	failed []bool // by model: whether it failed at all
	stride []int  // by model: step to the next number until some loads passed and some failed; it doubles
}

var grid = sim.LoadGrid{Step: Step} // grid has the loads of all searches.

// NextLowerLoad returns the next lower load of the grid, or 0 if there is none.
func Lower(load float64) float64 {
	if number := grid.Nearest(load) - 1; number > 0 {
		return grid.Load(number)
	}
	return 0
}

// Run searches for the highest loads that pass. Models that fail get less load. If all pass, each
// gets more: in doubling steps until it fails, then by bisection.
//
// The highest of many loads passes by luck more often than a single one. So other random numbers
// must confirm it, or a lower load. Run returns nil if no loads pass. If the budget covers no more
// than the confirmation, there is no search: the confirmation begins with the last loads that
// passed, or else with the next candidates.
func (c *Climb) Run(ctx context.Context, t *Test) ([]float64, *sim.Result, error) {
	// Search, with random numbers of its own.
	c.start()
	seed := t.Scenario.Seed
	t.Scenario.Seed = seeded.Seed(seed, "climb")
	defer func() { t.Scenario.Seed = seed }()
	for slices.Min(c.at) >= 1 {
		if t.at(c.loads(c.at)).Within((1+thorough)*t.runs) != nil {
			if c.passed == nil {
				c.passed = slices.Clone(c.at)
			}
			break
		}
		found, short, err := t.confirm(ctx, c.loads(c.at), t.runs)
		if err != nil {
			return nil, nil, err
		}
		c.Events += found.Events
		if slices.Contains(short, true) && c.passed == nil && c.Once {
			return nil, nil, nil
		}
		if !c.next(short) || c.passed != nil && c.Events > c.Work {
			break
		}
	}

	// Confirm with the scenario's random numbers. Loads that fail are lowered by a step.
	t.Scenario.Seed = seed
	for numbers := c.passed; numbers != nil && slices.Min(numbers) >= 1; {
		loads := c.loads(numbers)
		shown, short, err := t.Confirm(ctx, loads)
		if err != nil {
			return nil, nil, err
		}
		c.Events += shown.Events
		if !slices.Contains(short, true) {
			return loads, shown, nil
		}
		for i := range numbers {
			if short[i] || c.Together {
				numbers[i]--
			}
		}
	}
	return nil, nil, nil
}

// SustainedPart returns the highest part of a plan's rates, the same for all models, that passes the
// test that plans with simulated margins have to pass. If none passes, it returns 0.
func Part(ctx context.Context, plan *formats.Plan, asked kind.Asked) (float64, error) {
	t, err := New(plan, asked)
	if err != nil {
		return 0, err
	}
	t.Scenario.Budget = NewBudgets(asked, 2).Tests // there was no search
	ones := slices.Repeat([]float64{1}, len(t.Shares))
	c := &Climb{From: ones, Carried: ones, Together: true, Work: partBudget}
	loads, _, err := c.Run(ctx, t)
	if loads == nil {
		return 0, err
	}
	return loads[0], err
}

// startSearch sets the first candidates.
func (c *Climb) start() {
	n := len(c.From)
	c.at, c.above, c.stride, c.failed = make([]int, n), make([]int, n), make([]int, n), make([]bool, n)
	for i, load := range c.From {
		carried := c.Carried[i]
		if c.Together {
			carried = slices.Min(c.Carried)
		}
		highest := int(math.Ceil(grid.Position(carried) - 1e-9))
		c.at[i], c.above[i], c.stride[i] = min(grid.Nearest(load), highest), highest+1, 1
	}
}

// loadsOf returns the loads of grid numbers, at most what the replicas carry.
func (c *Climb) loads(numbers []int) []float64 {
	loads := make([]float64, len(numbers))
	for i, n := range numbers {
		loads[i] = min(grid.Load(n), c.Carried[i])
	}
	return loads
}

// advance chooses the next candidates after a test. failed says which models failed. It returns false
// if no higher loads can pass.
func (c *Climb) next(short []bool) bool {
	// All passed: go up, in doubling steps, or halfway to the lowest failure.
	if !slices.Contains(short, true) {
		c.passed = slices.Clone(c.at)
		for i := range c.at {
			room := c.above[i] - 1 - c.at[i]
			if c.failed[i] {
				c.at[i] += (room + 1) / 2
				continue
			}
			c.at[i] += min(c.stride[i], room)
			c.stride[i] *= 2
		}
		return !slices.Equal(c.at, c.passed)
	}

	// Some failed: go down, or halfway to the loads that passed.
	for i := range c.at {
		if c.Together || short[i] {
			if c.passed != nil && c.at[i] <= c.passed[i] {
				return false // its load is no higher than one that passed, so the others took its capacity
			}
			c.above[i], c.failed[i] = c.at[i], true
		}
		switch {
		case c.passed == nil && c.Halve:
			c.at[i] = int(grid.Position(grid.Load(c.at[i])/2) + 1e-9)
		case !c.Together && !short[i]:
		case c.passed == nil:
			c.at[i] = max(min(1, c.at[i]-1), c.at[i]-c.stride[i])
			c.stride[i] *= 2
		default:
			c.at[i] = (c.passed[i] + c.at[i]) / 2
		}
	}
	return !slices.Equal(c.at, c.passed)
}
