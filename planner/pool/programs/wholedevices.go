package programs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// NewWholeDevices builds a program of which the optimum bounds all plans under the slot rule (no two models share a
// device): the most throughput θ of rates through templates, where each model takes a whole number of devices of each
// pool and replicas may be fractions. It has few whole numbers, so it is solved soon. templates holds indexes in the
// catalogue, and maxValue is a limit of θ that is known, in units.
func NewWholeDevices(c *templates.Catalogue, templates []int, maxValue float64) *milp.Model {
	p := c.Problem
	m := milp.New("whole devices per model")
	m.SetSense(milp.Maximize)
	theta := m.AddVar("theta", 0, maxValue, 1)

	// Rows: the whole devices of a pool that models take are at most its count; the rate of each model is at least θ; and
	// the devices that its templates take of a pool are at most its whole ones there.
	var rateRows []milp.Row
	poolRows := lists.Filled(len(p.Pools), func(k int) milp.Row { return m.AddLE("", float64(p.Pools[k].Count)) })
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

	// Columns: the rate through each template, in units, with the devices that a unit takes.
	for _, ti := range templates {
		t := &c.Templates[ti]
		entries := []milp.Entry{{Row: rateRows[t.Model], Coef: 1}}
		for k := range p.Pools {
			if devices := t.DevicesPerRPS(k); devices > 0 {
				entries = append(entries, milp.Entry{Row: takenRows[t.Model][k], Coef: devices * c.Units.ModelRPS[t.Model]})
			}
		}
		m.AddColumn("", 0, milp.Inf, 0, entries...)
	}
	return m
}

// MissingDevices returns, by pool, the fewest devices to add so that every model can have one replica of each stage of
// some pipeline. If none are missing, all are 0. choice holds the templates that pipelines may use. A search without a plan
// calls it: if these are all templates, and devices are missing, no plan exists, and the missing devices are the reason. If
// the solver finds no answer within its nodes, or not even a million devices more of each pool are enough, it returns nil.
func MissingDevices(ctx context.Context, solver milp.Solver, choice *relaxation.WaitChoice) []int {
	// Rows of the pools: the devices in use less the added ones are at most those that there are. Each added one costs 1.
	program := milp.New("devices missing")
	pools := choice.Catalogue.Problem.Pools
	poolRows, addedVars := make([]milp.Row, len(pools)), make([]milp.Var, len(pools))
	for k := range pools {
		addedVars[k] = program.AddInt("more "+pools[k].Kind, 0, 1e6, 1)
		poolRows[k] = program.AddLE("devices "+pools[k].Kind, float64(pools[k].Count), milp.Term{Var: addedVars[k], Coef: -1})
	}

	// Each model takes one of its uses (devices by pool for one replica of each stage). Models that have the same uses are
	// counted together: a variable says how many of them take a use, so that the program is small with many models.
	usesByModel, modelsByUses := singleReplicaUses(choice)
	for _, usesKey := range slices.Sorted(maps.Keys(modelsByUses)) {
		equalModels := modelsByUses[usesKey]
		row := program.AddEQ("models", float64(len(equalModels)))
		for _, devices := range usesByModel[equalModels[0]] { // those of the others are the same
			modelsUsing := program.AddInt("", 0, float64(len(equalModels)), 0)
			program.AddTerm(row, modelsUsing, 1)
			for k, n := range devices {
				program.AddTerm(poolRows[k], modelsUsing, n)
			}
		}
	}

	// The fewest additional devices.
	sol, err := solver.Solve(ctx, program, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return nil
	}
	return lists.Filled(len(addedVars), func(k int) int { return sol.Int(addedVars[k]) })
}

// singleReplicaUses returns, by model, its uses: the different numbers of devices of each pool that an allowed template
// of it takes with one replica of each stage ([model][use][pool]). modelsByUses has the indexes of the models that have
// equal uses, by the text of these uses.
func singleReplicaUses(choice *relaxation.WaitChoice) (usesByModel [][][]float64, modelsByUses map[string][]int) {
	usesByModel, modelsByUses = make([][][]float64, len(choice.Catalogue.Problem.Models)), map[string][]int{}
	for _, ti := range choice.AllowedTemplates {
		t := &choice.Catalogue.Templates[ti]
		devices := singleReplicaDevices(choice.Catalogue, t)
		isSame := func(use []float64) bool { return slices.Equal(use, devices) }
		if !slices.ContainsFunc(usesByModel[t.Model], isSame) {
			usesByModel[t.Model] = append(usesByModel[t.Model], devices)
		}
	}
	for d := range usesByModel {
		slices.SortFunc(usesByModel[d], slices.Compare)
		key := fmt.Sprint(usesByModel[d])
		modelsByUses[key] = append(modelsByUses[key], d)
	}
	return usesByModel, modelsByUses
}
