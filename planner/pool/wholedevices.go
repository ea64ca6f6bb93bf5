package pool

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// wholeNodes bounds the branch-and-bound nodes of the program of whole devices per model.
const wholeNodes = 400

// boundByWholeDevices lowers the bound by a relaxation in which only the devices of each kind that each model
// takes are whole numbers: under the slot rule, by which only replicas of one stage position of a model share a
// device, no two models do. There are few of these numbers, so the program is solved soon. A program of whole
// replicas branches on replicas first and hardly gets to them. It does nothing where models may share devices,
// for a price, for one model or very many, and where not all templates are known.
func boundByWholeDevices(ctx context.Context, search *planSearch) error {
	if search.goal.poolCosts() != nil || search.catalogue.incomplete || search.incumbent.plan == nil || search.problem.hasTimeShared() || search.problem.usesBundles() || search.problem.Rounding != Slot || len(search.problem.Models) < 2 {
		return nil
	}

	// Only templates that a better plan may use take part.
	templates := slices.DeleteFunc(slices.Clone(search.choice.allowedTemplates), func(ti int) bool {
		return search.choice.losses[ti] >= search.choice.lp.bound-search.incumbent.score()
	})
	options := search.workLimits(wholeNodes)
	options.Gap = provenGap
	sol, err := search.solver.Solve(ctx, newWholeDeviceProgram(search.catalogue, templates, search.choiceBound), options)
	if err != nil {
		return fmt.Errorf("solving for whole devices per model over %d pipelines: %w", len(templates), err)
	}
	if !math.IsNaN(sol.Bound) && sol.Status != milp.Infeasible {
		search.lowerBound(sol.Bound * (1 + 1e-9))
	}
	search.recordPhase("whole devices", len(templates), sol.Stats)
	return nil
}

// newWholeDeviceProgram builds the program of which the optimum bounds all plans: the most throughput, at most
// maxValue in units, of rates through templates, where each model takes a whole number of devices of each pool.
// Replicas may be fractions.
func newWholeDeviceProgram(c *templateCatalogue, templates []int, maxValue float64) *milp.Model {
	p := c.problem
	m := milp.New("whole devices per model")
	m.SetSense(milp.Maximize)
	theta := m.AddVar("theta", 0, maxValue, 1)

	// Rows: the devices of each pool, the rate of each model, and the devices that each model takes.
	var rateRows []milp.Row
	poolRows := make([]milp.Row, len(p.Pools))
	for k := range p.Pools {
		poolRows[k] = m.AddLE("", float64(p.Pools[k].Count))
	}
	takenRows := make([][]milp.Row, len(p.Models))
	for d := range p.Models {
		rateRows = append(rateRows, m.AddGE("", 0, milp.Term{Var: theta, Coef: -1}))
		takenRows[d] = make([]milp.Row, len(p.Pools))
		for k := range p.Pools {
			if n := p.Pools[k].Count; n > 0 {
				v := m.AddInt(fmt.Sprintf("n%d_%d", d, k), 0, float64(n), 0)
				m.AddTerm(poolRows[k], v, 1)
				takenRows[d][k] = m.AddLE("", 0, milp.Term{Var: v, Coef: -1})
			}
		}
	}

	// Columns: the rate through each template.
	for _, ti := range templates {
		t := &c.templates[ti]
		entries := []milp.Entry{{Row: rateRows[t.Model], Coef: 1}}
		for k := range p.Pools {
			if devices := t.DevicesPerRPS(k); devices > 0 {
				entries = append(entries, milp.Entry{Row: takenRows[t.Model][k], Coef: devices * c.units.modelRPS[t.Model]})
			}
		}
		m.AddColumn("", 0, milp.Inf, 0, entries...)
	}
	return m
}
