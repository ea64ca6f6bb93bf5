package certify

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats/seeded"
	"inferplan/sim"
	"inferplan/solver/stoch"
)

const (
	// Step is the step of loads, of what a model promises, and the least load of all.
	Step = 0.01

	confidence = .95 // that a plan holds what it states
	mostLooks  = 3
	thorough   = 2 // times the runs of a search for loads, between looks that confirm
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
	sc := *t.Scenario
	sc.Load, sc.Rates = 1, nil
	for i, load := range loads {
		sc.Rates = append(sc.Rates, t.Scenario.Tables.Models[i].RPS*load)
	}
	return &sc
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

	steps  []int  // of loads, to be tested next
	passed []int  // the last that passed; nil: none did
	failed []bool // by model, at a step more than is tested
}

// Run looks for the highest loads that pass. Models that fall short are offered a step less, and
// where all pass, those that never fell short a step more. The highest of many loads passed by
// luck more often than one alone, so other random numbers confirm it, or the next below. It
// returns nil where no loads pass. Where the budget has no more than the test that confirms takes,
// there is no search: the test begins with the last loads that passed, or else the next ones.
func (c *Climb) Run(ctx context.Context, t *Test) ([]float64, *sim.Result, error) {
	c.steps, c.failed = make([]int, len(c.From)), make([]bool, len(c.From))
	for i, load := range c.From {
		c.steps[i] = int(math.Round(load / Step))
	}
	seed := t.Scenario.Seed
	t.Scenario.Seed = seeded.Seed(seed, "climb")
	defer func() { t.Scenario.Seed = seed }()
	for slices.Min(c.steps) >= 1 {
		if t.at(c.loads(c.steps)).Within((1+thorough)*t.runs) != nil {
			if c.passed == nil {
				c.passed = slices.Clone(c.steps)
			}
			break
		}
		found, short, err := t.confirm(ctx, c.loads(c.steps), t.runs)
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
	for steps := c.passed; steps != nil && slices.Min(steps) >= 1; {
		loads := c.loads(steps)
		shown, short, err := t.Confirm(ctx, loads)
		if err != nil {
			return nil, nil, err
		}
		c.Events += shown.Events
		if !slices.Contains(short, true) {
			return loads, shown, nil
		}
		for i := range steps {
			if short[i] || c.Together {
				steps[i]--
			}
		}
	}
	return nil, nil, nil
}

// loads returns loads of so many steps, at most what replicas carry.
func (c *Climb) loads(steps []int) []float64 {
	loads := make([]float64, len(steps))
	for i, n := range steps {
		loads[i] = min(float64(n)*Step, c.Carried[i])
	}
	return loads
}

// next goes on from the test of steps, at which some models fell short or none did. It returns
// false where no higher loads may pass.
func (c *Climb) next(short []bool) bool {
	if !slices.Contains(short, true) {
		c.passed = slices.Clone(c.steps)
		for i, load := range c.loads(c.steps) {
			if !c.failed[i] && load < c.Carried[i] {
				c.steps[i]++
			}
		}
		return !slices.Equal(c.steps, c.passed)
	}
	for i := range c.steps {
		switch {
		case c.passed == nil && c.Halve:
			c.steps[i] /= 2
		case !short[i] && !c.Together:
		case c.passed != nil && (c.Together || c.steps[i] <= c.passed[i]):
			return false // others took from it what it had
		default:
			c.steps[i]--
			c.failed[i] = true
		}
	}
	return !slices.Equal(c.steps, c.passed)
}
