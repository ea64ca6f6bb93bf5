package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// maxCandidates bounds the wait choices that integer programs are solved for, if the goal is the least price.
const maxCandidates = 16

// Cheapest plans for the least price of the whole devices that carry every model's floor (MinRPS, which must be
// above 0 for each). prices holds the price of a device of each pool. Value and Bound of the outcome are prices,
// and Bound is a lower one. Of the plans at the price that was found, it takes one of the most throughput.
//
// The search is that of Solve with another goal: the relaxation proves a least price and gives the values of the
// models' rates. A plan that uses a template costs at least that template's loss more.
func Cheapest(ctx context.Context, p *Problem, prices []float64, s milp.Solver, o Options) (*Outcome, error) {
	return atFloors(p, func(p *Problem) (*Outcome, error) { return lowestPrice(ctx, p, prices, s, o) })
}

// lowestPrice is Cheapest with the floors as they are.
func lowestPrice(ctx context.Context, p *Problem, prices []float64, s milp.Solver, o Options) (*Outcome, error) {
	g := newLeastPrice(p, prices)
	if !(g.unit > 0) {
		return nil, errors.New("planning for the least price: no device has a price")
	}
	x, err := newSearch(ctx, p, s, o, g)
	if err != nil {
		return nil, err
	}
	if err := x.each(ctx, maxCandidates*x.o.Effort); err != nil {
		return nil, err
	}
	if err := x.served(ctx); err != nil {
		return nil, err
	}
	c := &cheapest{polish{x}, g}
	if !o.Any {
		if err := c.most(ctx); err != nil {
			return nil, err
		}
	}
	return c.finish(ctx)
}

// priceSearch is a search for the least price.
type cheapest struct {
	polish
	g *leastPrice
}

// onPaidDevices returns the problem on the devices that a plan pays for.
func (c *cheapest) within(plan *counts) *Problem {
	q := *c.Problem
	q.Pools = slices.Clone(c.Pools)
	for k, n := range c.wholePools(plan) {
		q.Pools[k].Count = n
	}
	return &q
}

// raiseThroughput looks, on the devices paid for, for the plan of the most throughput.
func (c *cheapest) most(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	p := c.within(c.best)

	// The templates on pools that are paid for.
	var set []int
	for _, i := range c.pick(c.ranked(), c.lp.used, poolPerModel) {
		if !slices.ContainsFunc(c.templates[i].Stages, func(s stages.Stage) bool { return p.Pools[s.Pool].Count == 0 }) {
			set = append(set, i)
		}
	}

	// The program maximises the throughput on these devices, within the limit on moves.
	q := c.on(p).program(with(set, c.best.list), 1e6, 0)
	if c.partial || c.many() {
		q.pin(c.best) // the plan stays as it is: only its idle devices are used
	}
	if c.stay != nil {
		q.limitMoves(c.stay, c.stay.most)
	}
	o := c.work(sumNodes)
	o.Gap = 1e-3
	plan, stats, err := c.solve(ctx, q, o, "the most throughput at the least price")
	if err != nil {
		return err
	}

	// Keep the plan if it carries more at the same price.
	if plan != nil && plan.value > c.best.value && c.g.score(c.catalogue, plan) >= c.score() && c.fits(plan) {
		c.best = plan
	}
	c.phase("most throughput", len(q.set), stats)
	return nil
}

// writePricedOutcome places the plan and returns the outcome. Time-shared pools are cut to the devices paid for,
// exclusive ones are not, because shares may need more devices than their sum.
func (c *cheapest) finish(ctx context.Context) (*Outcome, error) {
	// Place the plan, with time-shared pools cut to the devices paid for.
	paid := c.within(c.best)
	p := *c.Problem
	p.Pools = slices.Clone(c.Pools)
	for k := range p.Pools {
		if p.Pools[k].Time {
			p.Pools[k].Count = paid.Pools[k].Count
		}
	}
	on := c.on(&p)
	plan, where, warnings := on.place(c.best, c.stay.holds())
	if plan == nil {
		return nil, fmt.Errorf("placing the plan: %d pipelines do not fit their devices one by one", len(c.best.list))
	}

	// Write the outcome.
	o := c.out
	o.Warnings = append(o.Warnings, warnings...)
	o.RPS = plan.rps
	o.Pipelines = on.pipelines(plan, where)
	if c.stay != nil {
		o.Moved = c.stay.loads(o.Pipelines)
	}

	// The price counts the devices that are used in the end.
	used := make([]int, len(p.Pools))
	for i := range o.Pipelines {
		for si, s := range o.Pipelines[i].Stages {
			for _, r := range o.Pipelines[i].Placed[si] {
				used[s.Pool] = max(used[s.Pool], r.First+(r.Replicas+r.PerDevice-1)/r.PerDevice)
			}
		}
	}
	for k, n := range used {
		o.Value += c.g.prices[k] * float64(n)
	}
	o.Bound = min(c.shown(c.proven()), o.Value)
	o.StoppedBy = c.stopped
	if c.stopped == milp.StoppedByProof && o.Value > o.Bound*(1+10*proof) {
		o.StoppedBy = milp.StoppedByWork // shares needed one more device than their sum
	}
	if ctx.Err() != nil {
		o.StoppedBy = milp.StoppedByInterrupt
	}
	return o, nil
}
