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
	return solveAtFloors(p, func(p *Problem) (*Outcome, error) { return lowestPrice(ctx, p, prices, s, o) })
}

// lowestPrice is Cheapest with the floors as they are.
func lowestPrice(ctx context.Context, p *Problem, prices []float64, s milp.Solver, o Options) (*Outcome, error) {
	priceGoal := newMinPriceGoal(p, prices)
	if !(priceGoal.totalPrice > 0) {
		return nil, errors.New("planning for the least price: no device has a price")
	}
	x, err := newSearch(ctx, p, s, o, priceGoal)
	if err != nil {
		return nil, err
	}
	if err := x.planChoices(ctx, maxCandidates*x.options.Effort); err != nil {
		return nil, err
	}
	if err := x.requirePlan(ctx); err != nil {
		return nil, err
	}
	priced := &priceSearch{x, x.problem, x.catalogue, x.incumbent, x.choice, priceGoal}
	if !o.NoPolish {
		if err := priced.raiseThroughput(ctx); err != nil {
			return nil, err
		}
	}
	return priced.writePricedOutcome(ctx)
}

// priceSearch is a search for the least price.
type priceSearch struct {
	search    *planSearch
	problem   *Problem
	catalogue *templateCatalogue
	incumbent *incumbent
	choice    *waitChoice
	priceGoal *minPriceGoal
}

// onPaidDevices returns the problem on the devices that a plan pays for.
func (c *priceSearch) onPaidDevices(plan *replicaPlan) *Problem {
	paid := *c.problem
	paid.Pools = slices.Clone(c.problem.Pools)
	for k, n := range c.catalogue.wholeDevicesUsed(plan) {
		paid.Pools[k].Count = n
	}
	return &paid
}

// raiseThroughput looks, on the devices paid for, for the plan of the most throughput.
func (c *priceSearch) raiseThroughput(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	p := c.onPaidDevices(c.incumbent.plan)

	// The templates on pools that are paid for.
	var templates []int
	for _, i := range c.choice.pickTemplates(c.choice.templatesByLoss(), c.choice.lp.usedTemplates, smallPerModel) {
		if !slices.ContainsFunc(c.catalogue.templates[i].Stages, func(s stages.Stage) bool { return p.Pools[s.Pool].Count == 0 }) {
			templates = append(templates, i)
		}
	}

	// The program maximises the throughput on these devices, within the limit on moves.
	program := c.catalogue.withProblem(p).newProgram(unionTemplates(templates, c.incumbent.plan.pipelines), 1e6, 0)
	if c.catalogue.incomplete || c.problem.usesBundles() {
		program.fixReplicas(c.incumbent.plan) // the plan stays as it is: only its idle devices are used
	}
	if c.search.replan != nil {
		program.limitMoves(c.search.replan, c.search.replan.maxMoved)
	}
	options := c.search.workLimits(sumNodes)
	options.Gap = 1e-3
	plan, stats, err := program.solveFrom(ctx, c.search.solver, c.incumbent.plan, options, "the most throughput at the least price")
	if err != nil {
		return err
	}

	// Keep the plan if it carries more at the same price.
	if plan != nil && plan.value > c.incumbent.plan.value && c.priceGoal.scoreOf(c.catalogue, plan) >= c.incumbent.score() && c.incumbent.isPlaceable(plan) {
		c.incumbent.plan = plan
	}
	c.search.recordPhase("most throughput", len(program.templateSet), stats)
	return nil
}

// writePricedOutcome places the plan and returns the outcome. Time-shared pools are cut to the devices paid for,
// exclusive ones are not, because shares may need more devices than their sum.
func (c *priceSearch) writePricedOutcome(ctx context.Context) (*Outcome, error) {
	// Place the plan, with time-shared pools cut to the devices paid for.
	paidProblem := c.onPaidDevices(c.incumbent.plan)
	p := *c.problem
	p.Pools = slices.Clone(c.problem.Pools)
	for k := range p.Pools {
		if p.Pools[k].TimeShared {
			p.Pools[k].Count = paidProblem.Pools[k].Count
		}
	}
	placedOn := c.catalogue.withProblem(&p)
	plan, placement, warnings := placedOn.placePlan(c.incumbent.plan, c.search.replan.heldContents())
	if plan == nil {
		return nil, fmt.Errorf("placing the plan: %d pipelines do not fit their devices one by one", len(c.incumbent.plan.pipelines))
	}

	// Write the outcome.
	written := c.search.outcome
	written.Warnings = append(written.Warnings, warnings...)
	written.RPS = plan.modelRPS
	written.Pipelines = placedOn.placedPipelines(plan, placement)
	if c.search.replan != nil {
		written.MovedDevices = c.search.replan.countLoading(written.Pipelines)
	}

	// The price counts the devices that are used in the end.
	for k, n := range placedDevices(&p, written.Pipelines) {
		written.Value += c.priceGoal.devicePrices[k] * float64(n)
	}
	written.Bound = min(c.search.displayValue(c.search.provenBound()), written.Value)
	written.StoppedBy = c.search.stoppedBy
	if c.search.stoppedBy == milp.StoppedByProof && written.Value > written.Bound*(1+10*provenGap) {
		written.StoppedBy = milp.StoppedByWork // shares needed one more device than their sum
	}
	if ctx.Err() != nil {
		written.StoppedBy = milp.StoppedByInterrupt
	}
	return written, nil
}

// placedDevices returns, by pool, how many devices from the first to the last used one some pipelines take.
func placedDevices(p *Problem, pipelines []Pipeline) []int {
	devices := make([]int, len(p.Pools))
	for i := range pipelines {
		for si, s := range pipelines[i].Stages {
			for _, run := range pipelines[i].Placement[si] {
				devices[s.Pool] = max(devices[s.Pool], run.First+(run.Replicas+run.PerDevice-1)/run.PerDevice)
			}
		}
	}
	return devices
}
