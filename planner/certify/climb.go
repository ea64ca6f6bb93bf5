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
	// Step is the step of the grid of loads, of what a model promises. No load is below it.
	Step = 0.01

	confidence = .95 // that a plan holds what it states
	mostLooks  = 3
	thorough   = 2         // times the runs of a search for loads, between looks that confirm
	partBudget = 3_000_000 // events that Part simulates once some loads passed
)

// Confirm tests every model at a load, in multiples of its promised rate. It has to attain its share of requests in
// time, alone or together with the others that Plan.Pooled lists with it. This is a sequential test:
// after every few runs, models whose attainment is at least that at
// a confidence of .95 (one-sided Student intervals over the runs) have passed, and those that
// would fail even with the runs that are left have not. It returns the outcome of all runs, and
// for every model whether it fell short.
func (t *Test) Confirm(ctx context.Context, loads []float64) (*sim.Result, []bool, error) {
	return t.confirm(ctx, loads, thorough*t.runs)
}

// confirm is Confirm with so many runs between looks.
func (t *Test) confirm(ctx context.Context, loads []float64, between int) (*sim.Result, []bool, error) {
	runs := &sim.Replications{Scenario: t.at(loads)}
	t.Asked.Duration = runs.Scenario.Duration
	for looks := 1; ; looks++ {
		t.Asked.Runs = looks * between
		if err := runs.Extend(ctx, t.Asked.Runs); err != nil {
			return nil, nil, fmt.Errorf("certifying: %w", err)
		}
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

// at returns the scenario with each model at a load, in multiples of its promised rate.
func (t *Test) at(loads []float64) *sim.Scenario {
	var rates []float64
	for i, load := range loads {
		rates = append(rates, t.Scenario.Tables.Models[i].RPS*load)
	}
	return t.Scenario.AtRates(rates, t.longest)
}

// Climb is a search for the highest loads of models that pass the test.
type Climb struct {
	From     []float64 // loads that are tested first
	Carried  []float64 // by model, the load that its replicas carry, of which no more is tested
	Together bool      // all models have the same load: one that has too much fails the others
	// Once ends the search where the first loads do not pass. Halve halves loads until some pass.
	Once, Halve bool
	// Work is how many events the search may simulate once some loads passed.
	Work int64
	// Events are those that it did simulate.
	Events int64

	at     []int // by model, the number of the load in the grid that is tested next
	passed []int // the last that passed; nil: none did
	above  []int // by model, the least number at which it fell short, or one that is not tested
	failed []bool
	stride []int // by model, to the next number until some loads passed and some failed; doubles
}

var grid = sim.LoadGrid{Step: Step}

// Lower returns the next lower load of the grid. If there is none, it returns 0.
func Lower(load float64) float64 {
	if number := grid.Nearest(load) - 1; number > 0 {
		return grid.Load(number)
	}
	return 0
}

// Run looks for the highest loads that pass. Models that fall short are offered less, and where
// all pass, each is offered more: twice as much more every time until it falls short, then half
// of what lies between. The highest of many loads passed by
// luck more often than one alone, so other random numbers confirm it, or the next below. It
// returns nil where no loads pass. Where the budget has no more than the test that confirms takes,
// there is no search: the test begins with the last loads that passed, or else the next ones.
func (c *Climb) Run(ctx context.Context, t *Test) ([]float64, *sim.Result, error) {
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

// Part returns the highest part of a plan's rates, one for all models, that passes the test by
// which plans with margins found by simulation state theirs. If none passes, it returns 0.
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

// start begins at the first loads.
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

// loads returns the loads of numbers, at most what replicas carry.
func (c *Climb) loads(numbers []int) []float64 {
	loads := make([]float64, len(numbers))
	for i, n := range numbers {
		loads[i] = min(grid.Load(n), c.Carried[i])
	}
	return loads
}

// next goes on from a test at which some models fell short or none did. It returns false where
// no higher loads may pass.
func (c *Climb) next(short []bool) bool {
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
	for i := range c.at {
		if c.Together || short[i] {
			if c.passed != nil && c.at[i] <= c.passed[i] {
				return false // others took from it what it had
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
