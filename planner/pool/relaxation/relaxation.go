package relaxation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Solution is the solved linear program over a set of templates. All figures are in units. value and bound are
// scores of the goal.
type Solution struct {
	Value         float64   // optimum that the solver found
	Bound         float64   // proven: no plan over these templates scores more
	PoolPrice     []float64 // by pool: what all its devices are worth together (π)
	RateDual      []float64 // by model: what one unit of its rate is worth (λ)
	UsedTemplates []int     // templates with a rate above zero
	UsedRates     []float64 // of each of UsedTemplates, in units
	basis         *milp.Basis
}

// masterProgram is the linear program over some templates, the restricted master of column generation. In
// the words of docs/methods/pool.md, with x_t the rate through template t and c_tk its devices of pool k per request/s:
//
//	max θ   s.t.  Σ_{t of d} x_t >= w_d θ  (all d),  Σ_t c_tk x_t <= N_k  (all k)
//
// and every model's rate is at least its floor. If devices have costs, the program instead minimises the cost of
// the devices that carry the floors.
type masterProgram struct {
	problem   *problem.Problem
	catalogue *templates.Catalogue
	m         *milp.Model
	poolCosts []float64  // by pool: cost of all its devices; nil if devices cost nothing
	extraPool int        // pool that has one more device; -1 if none has
	theta     milp.Var   // θ; -1 with costs
	rateVars  []milp.Var // by template: its rate
	modelRows []milp.Row // Σ x_t - w_d θ >= 0; -1 with costs
	floorRows []milp.Row // by model; -1 without a floor
	poolRows  []milp.Row // by pool, in parts of its devices; -1 for empty pools
}

// newMasterProgram builds the relaxation: the linear program of the rates through some templates (by their indexes in
// the catalogue), with devices in fractions. If poolCosts is nil, it maximises θ, the least rate of a model per weight;
// else, with the cost of all devices of each pool, it minimises the cost of the devices in use. extraPool is the index
// of a pool that has one more device, or -1. If withFloors is false, the floors (the least rates asked for) are left
// out.
func newMasterProgram(c *templates.Catalogue, poolCosts []float64, templates []int, extraPool int, withFloors bool) *masterProgram {
	program := &masterProgram{problem: c.Problem, catalogue: c, m: milp.New("relaxation"), poolCosts: poolCosts, extraPool: extraPool, theta: -1}
	if poolCosts == nil {
		program.m.SetSense(milp.Maximize)
		program.theta = program.m.AddVar("theta", 0, milp.Inf, 1)
	}

	// The rows of the models: the rate, in units, is at least θ, and as a part of the floor at least 1. -1: no such row.
	for d := range c.Problem.Models {
		row := milp.Row(-1)
		if poolCosts == nil {
			row = program.m.AddGE("rate "+c.Problem.Models[d].Name, 0, milp.Term{Var: program.theta, Coef: -1})
		}
		program.modelRows = append(program.modelRows, row)
		row = -1
		if floor := c.Problem.Models[d].MinRPS; withFloors && floor > 0 {
			row = program.m.AddGE("floor "+c.Problem.Models[d].Name, 1)
		}
		program.floorRows = append(program.floorRows, row)
	}

	// The rows of the pools with devices: the parts of them in use are at most 1.
	for k := range c.Problem.Pools {
		row := milp.Row(-1)
		if c.Problem.Pools[k].Count > 0 {
			row = program.m.AddLE("devices "+c.Problem.Pools[k].Kind, program.capacity(k))
		}
		program.poolRows = append(program.poolRows, row)
	}

	// The columns: the rate through each template.
	program.rateVars = make([]milp.Var, 0, len(templates))
	for _, ti := range templates {
		program.addTemplate(&c.Templates[ti])
	}
	return program
}

// capacity returns how many devices of a pool the program may use, in parts of those that there are: 1, or more
// for the pool that gets one more device.
func (l *masterProgram) capacity(k int) float64 {
	if k == l.extraPool {
		return float64(l.problem.Pools[k].Count+1) / float64(l.problem.Pools[k].Count)
	}
	return 1
}

// addTemplate adds to the program the column of a template: a variable for the rate through it, in units of its model,
// which counts for the model's rate and floor and takes parts of each pool's devices. newMasterProgram calls it for the
// first templates, column generation for each that joins later.
func (l *masterProgram) addTemplate(t *stages.Template) {
	entries := make([]milp.Entry, 0, 8)
	if row := l.modelRows[t.Model]; row >= 0 {
		entries = append(entries, milp.Entry{Row: row, Coef: 1})
	}
	if row := l.floorRows[t.Model]; row >= 0 {
		entries = append(entries, milp.Entry{Row: row, Coef: l.catalogue.FloorShare(t.Model)})
	}
	for k := range l.problem.Pools {
		if devicesPerRPS := t.DevicesPerRPS(k); devicesPerRPS > 0 {
			entries = append(entries, milp.Entry{Row: l.poolRows[k], Coef: devicesPerRPS * l.catalogue.Units.ModelRPS[t.Model] / float64(l.problem.Pools[k].Count)})
		}
	}
	obj := 0.0 // in throughput θ alone counts
	if l.poolCosts != nil {
		obj = l.catalogue.UnitCost(t, l.poolCosts)
	}
	l.rateVars = append(l.rateVars, l.m.AddColumn("", 0, milp.Inf, obj, entries...))
}

// ErrInfeasible is returned when the floors cannot all be met.
var ErrInfeasible = errors.New("the relaxation is infeasible")

// Solve solves the linear program over a set of templates. If the floors cannot all be met, it returns
// ErrInfeasible.
func Solve(ctx context.Context, c *templates.Catalogue, s milp.Solver, poolCosts []float64, templates []int) (*Solution, error) {
	return solveFrom(ctx, c, s, poolCosts, templates, -1, nil)
}

// solveFrom solves the relaxation (rates through templates, devices in fractions) and bounds all plans by its duals. It
// starts from the basis of an earlier solve, or from nothing if that is nil. poolCosts has the cost of all devices of
// each pool; if it is nil, throughput is maximised. extraPool is a pool that has one more device, or -1. If the floors
// (least rates) cannot be met, it returns ErrInfeasible.
func solveFrom(ctx context.Context, c *templates.Catalogue, solver milp.Solver, poolCosts []float64, templates []int, extraPool int, basis *milp.Basis) (*Solution, error) {
	program := newMasterProgram(c, poolCosts, templates, extraPool, true) // with floors
	sol, err := solver.Solve(ctx, program.m, milp.Options{Basis: basis})
	if err != nil {
		return nil, fmt.Errorf("solving the relaxation over %d pipelines: %w", len(templates), err)
	}
	switch sol.Status {
	case milp.Optimal:
	case milp.Infeasible:
		return nil, ErrInfeasible
	default:
		if ctx.Err() != nil {
			return nil, fmt.Errorf("solving the relaxation: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("solving the relaxation: the solver ended with %s", sol.Status)
	}

	// Bound the optimum by the duals, which price the devices. The proof needs, for each model, the least cost of the devices
	// that a unit of its rate takes at these prices.
	duals := program.readDuals(sol.RowDuals)
	minCost := slices.Repeat([]float64{math.Inf(1)}, len(c.Problem.Models))
	for _, ti := range templates {
		t := &c.Templates[ti]
		minCost[t.Model] = min(minCost[t.Model], c.UnitCost(t, duals.poolPrice))
	}
	solved := program.readSolution(sol, templates)
	if duals.priceFactor(minCost) > 1.001 {
		// In an exact solution no rate is worth more than its devices cost. Here one is, by more than .1 %, far beyond rounding.
		// The proof would raise all prices, and with them the bound, by that much. So the program's own value, with some
		// tolerance, is the bound.
		solved.PoolPrice, solved.RateDual, solved.Bound = duals.poolPrice, duals.rateDual, solved.Value*(1+1e-7)
		return solved, nil
	}
	program.proveBound(duals, minCost, solved)
	return solved, nil
}

// readSolution returns the value, as a score (a cost with its sign turned), and the rates above 0 of a solution of the
// program. templates holds the catalogue's index of each rate variable, in the order of rateVars. The bound and the
// prices are not set: proveBound does that.
func (l *masterProgram) readSolution(sol *milp.Solution, templates []int) *Solution {
	solved := &Solution{Value: sol.Value, basis: sol.Basis}
	if l.poolCosts != nil {
		solved.Value = -sol.Value
	}
	for i, ti := range templates {
		if units := sol.At(l.rateVars[i]); units > 1e-9 {
			solved.UsedTemplates = append(solved.UsedTemplates, ti)
			solved.UsedRates = append(solved.UsedRates, units)
		}
	}
	return solved
}

// dualWeights holds the prices of the pools and the values of the models' rates, read from the duals.
type dualWeights struct {
	poolPrice, rateDual []float64
	totalScarcity       float64 // with costs: sum of what the pools' limits add to the prices
	floorDuals          float64 // without costs: sum of the duals of the floors
	normalised          bool    // without costs: the duals of the models' rows were scaled to sum to 1
}

// readDuals reads the duals of a solution of the relaxation (by row) as weights: the worth of all devices of each pool
// together, and of a unit of each model's rate, from which templates are priced and proveBound proves the bound. If
// throughput is maximised, it scales them so that the duals of the models' rows sum to 1, which that proof supposes. If
// those are all zero, all weights are zero and normalised is false. With costs the models have no such rows: nothing is
// scaled, and normalised is false, too.
func (l *masterProgram) readDuals(duals []float64) dualWeights {
	// dual returns the dual of a row without its sign, which differs between rows; 0 for a row that is not there (-1).
	dual := func(row milp.Row) float64 {
		if row < 0 {
			return 0
		}
		return math.Abs(duals[row])
	}
	weights := dualWeights{poolPrice: make([]float64, len(l.problem.Pools)), rateDual: make([]float64, len(l.problem.Models))}

	// Without costs, divide all duals by the sum of those of the models' rows; with costs, by 1.
	modelDuals := 1.0
	if l.poolCosts == nil {
		modelDuals = 0
		for d := range l.problem.Models {
			modelDuals += dual(l.modelRows[d])
		}
		if !(modelDuals > 0) {
			return weights
		}
		weights.normalised = true
	}

	// A unit of a model's rate counts for its row and, if it has a floor, for the row of the floor. That row counts rates in
	// parts of the floor, of which a unit is FloorShare, and must reach 1. So its dual is also the worth of the whole floor.
	for d := range l.problem.Models {
		weights.rateDual[d] = dual(l.modelRows[d]) / modelDuals
		if l.floorRows[d] >= 0 {
			floorDual := dual(l.floorRows[d]) / modelDuals
			weights.floorDuals += floorDual
			weights.rateDual[d] += floorDual * l.catalogue.FloorShare(d)
		}
	}

	// The devices of a pool are worth its dual (its scarcity) and, with costs, also their cost. The proof with costs needs
	// the sum of the scarcities alone.
	for k := range l.problem.Pools {
		weights.poolPrice[k] = dual(l.poolRows[k]) / modelDuals
		if l.poolCosts != nil {
			weights.totalScarcity += weights.poolPrice[k]
			weights.poolPrice[k] += l.poolCosts[k]
		}
	}
	return weights
}

// priceFactor returns the factor, at least 1, by which the prices of devices must grow so that no unit of a model's rate
// is worth more than the devices that it takes. The proof of the bound (proveBound) supposes this. The duals of a solver
// keep it up to a tolerance only, so the factor is hardly above 1. minCost has, by model, the least cost of a unit through
// any template at the prices as they are. If costs are minimised, or the duals of the models' rows are zero, it returns 1,
// as the proof does not raise prices then.
func (w *dualWeights) priceFactor(minCost []float64) float64 {
	if !w.normalised {
		return 1
	}
	factor := 1.0
	for d, worth := range w.rateDual {
		if worth > 0 {
			factor = max(factor, worth/minCost[d])
		}
	}
	return factor
}

// proveBound sets, in solved, the prices of pools, the worth of rates and the bound on every plan, from the duals of the
// relaxation, whose slices it takes over and changes. minCost has, by model d, the least cost of a unit of its rate through
// any template. The bound follows from weak duality, whatever the solver's tolerances are.
//
// If throughput θ is maximised: take prices π_k >= 0 of all devices of each pool k, a worth μ_d >= 0 of a unit of the floor
// of each model, and weights >= 0 of the models' rows that sum to 1 (duals are normalised so). If no template's rate is
// worth more than its devices cost, then for every plan
//
//	θ <= Σ π_k - Σ μ_d floor_d
//
// Prices are raised (priceFactor) until that is so. If costs are minimised, the scarcity of a pool is its price less the
// cost of its devices, and every plan costs at least
//
//	Σ rateDual_d floor_d - Σ scarcity_k
//
// if no rate is worth more than its devices cost. Here the worth of rates is lowered until that is so. Duals that give no
// finite bound prove nothing: then the program's own value, with some tolerance, is the bound.
func (l *masterProgram) proveBound(duals dualWeights, minCost []float64, solved *Solution) {
	solved.PoolPrice, solved.RateDual = duals.poolPrice, duals.rateDual
	defer func() {
		if math.IsNaN(solved.Bound) || math.IsInf(solved.Bound, 0) {
			solved.Bound = solved.Value + 1e-7*math.Abs(solved.Value)
		}
	}()

	// With costs: Σ rateDual_d floor_d - Σ scarcity_k. The bound is a score, of which higher is better: minus the cost.
	if l.poolCosts != nil {
		leastPrice := -duals.totalScarcity
		for d := range l.problem.Models {
			solved.RateDual[d] = min(solved.RateDual[d], minCost[d])
			leastPrice += solved.RateDual[d] * l.problem.Models[d].MinRPS / l.catalogue.Units.ModelRPS[d]
		}
		solved.Bound = -max(leastPrice, 0)
		return
	}
	if !duals.normalised {
		solved.Bound = solved.Value * (1 + 1e-7)
		return
	}

	// Without costs: Σ π_k - Σ μ_d floor_d, after prices were raised. floorDuals is the second sum. A pool with one more
	// device than it has counts with its higher capacity.
	factor := duals.priceFactor(minCost)
	for k := range l.problem.Pools {
		solved.PoolPrice[k] *= factor
		solved.Bound += solved.PoolPrice[k] * l.capacity(k)
	}
	solved.Bound -= duals.floorDuals
}
