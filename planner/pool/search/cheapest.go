package search

import (
	"context"
	"errors"
	"slices"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/planner/pool/templates"
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
func Cheapest(ctx context.Context, p *problem.Problem, prices []float64, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	return solveAtFloors(p, func(p *problem.Problem) (*problem.Outcome, error) { return lowestPrice(ctx, p, prices, s, o) })
}

// lowestPrice searches for the plan of the least price of devices that carries the floors, and returns its
// outcome. It takes the floors (the least rates asked for) as they are: its caller allows for a tolerance.
// prices holds the price of a device of each pool. At the price found, it looks for the most throughput.
func lowestPrice(ctx context.Context, p *problem.Problem, prices []float64, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	priceGoal := incumbent.NewMinPrice(p, prices)
	if !(priceGoal.TotalPrice > 0) {
		return nil, errors.New("planning for the least price: no device has a price")
	}
	search, err := newSearch(ctx, p, s, o, priceGoal)
	if err != nil {
		return nil, err
	}
	if err := search.planChoices(ctx, maxCandidates*search.options.Effort); err != nil {
		return nil, err
	}
	if err := search.requirePlan(ctx); err != nil {
		return nil, err
	}
	if !o.NoPolish {
		if err := raiseThroughput(ctx, search); err != nil {
			return nil, err
		}
	}
	return writePricedOutcome(ctx, search, prices)
}

// onPaidDevices returns the problem with only so many devices of each pool as a plan takes, and pays for.
func onPaidDevices(c *templates.Catalogue, plan *placement.Plan) *problem.Problem {
	paid := *c.Problem
	paid.Pools = slices.Clone(c.Problem.Pools)
	for k, n := range placement.WholeDevicesUsed(c, plan) {
		paid.Pools[k].Count = n
	}
	return &paid
}

// raiseThroughput looks, on the devices that the cheapest plan pays for, for the plan of the most throughput, and makes it
// the best plan of the search if it carries more at the same price. If not all templates are known, or the models are too
// many for a program over all replicas, its replicas stay, and only idle devices get further ones.
func raiseThroughput(ctx context.Context, search *planSearch) error {
	if ctx.Err() != nil {
		return nil
	}
	p := onPaidDevices(search.catalogue, search.incumbent.Plan)

	// The templates on pools that are paid for.
	var templates []int
	for _, i := range search.choice.BestTemplates(smallPerModel) {
		if !slices.ContainsFunc(search.catalogue.Templates[i].Stages, func(s stages.Stage) bool { return p.Pools[s.Pool].Count == 0 }) {
			templates = append(templates, i)
		}
	}

	// The program maximises the throughput on these devices, within the limit on moves. Throughput, in units, is at least 0
	// and at most 1e6, which is far above any that is possible, and so no limit.
	program := programs.New(search.catalogue.WithProblem(p), programs.UnionTemplates(templates, search.incumbent.Plan.Pipelines), 1e6, 0)
	templatesMissing, tooManyModels := search.catalogue.Incomplete, search.problem.UsesBundles()
	if templatesMissing || tooManyModels {
		program.FixReplicas(search.incumbent.Plan) // its replicas stay: only idle devices get further ones
	}
	if search.replan != nil {
		program.LimitMoves(search.replan, search.replan.MaxMoved)
	}
	options := search.options.WorkLimits(sumNodes)
	options.Gap = 1e-3

	// Keep the plan if it carries more at no higher price. A score is a price with its sign turned.
	return polishBy(ctx, search, "most throughput", "the most throughput at the least price", program, options, func(found *placement.Plan) bool {
		isNoDearer := search.goal.ScoreOf(search.catalogue, found) >= search.incumbent.Score()
		return found.Value > search.incumbent.Plan.Value && isNoDearer && search.incumbent.IsPlaceable(found)
	})
}

// writePricedOutcome places the plan of least price on devices and returns the outcome, with its price and the
// bound on any plan's price. The plan pays for as many devices of a pool as its replicas' shares add up to, rounded
// up. Time-shared pools are cut to these. Exclusive ones are not, because replicas that share devices do not always
// fit so few of them one by one.
func writePricedOutcome(ctx context.Context, search *planSearch, devicePrices []float64) (*problem.Outcome, error) {
	// Place the plan, with time-shared pools cut to the devices paid for.
	paidProblem := onPaidDevices(search.catalogue, search.incumbent.Plan)
	p := *search.problem
	p.Pools = slices.Clone(search.problem.Pools)
	for k := range p.Pools {
		if p.Pools[k].TimeShared {
			p.Pools[k].Count = paidProblem.Pools[k].Count
		}
	}
	if _, err := placeOutcome(ctx, search, search.catalogue.WithProblem(&p)); err != nil {
		return nil, err
	}

	// The price, which the outcome does not have yet, counts the devices that are used in the end. If replicas needed more
	// devices than their shares add up to, the price is above what was proven to be the least.
	outcome := search.outcome
	for k, n := range placedDevices(&p, outcome.Pipelines) {
		outcome.Value += devicePrices[k] * float64(n)
	}
	outcome.Bound = min(search.displayValue(search.incumbent.ProvenBound()), outcome.Value)
	if outcome.StoppedBy == milp.StoppedByProof && outcome.Value > outcome.Bound*(1+10*incumbent.ProvenGap) {
		outcome.StoppedBy = milp.StoppedByWork
	}
	return outcome, nil
}

// placedDevices returns, by pool, the number of devices that placed pipelines take: one more than the highest index of a
// device that is used. A stage is placed in runs: Replicas of it, PerDevice on each device, from device First on.
func placedDevices(p *problem.Problem, pipelines []problem.Pipeline) []int {
	devices := make([]int, len(p.Pools))
	for i := range pipelines {
		for si, s := range pipelines[i].Stages {
			for _, run := range pipelines[i].Placement[si] {
				devices[s.Pool] = max(devices[s.Pool], run.FirstDevice+(run.Replicas+run.PerDevice-1)/run.PerDevice)
			}
		}
	}
	return devices
}
