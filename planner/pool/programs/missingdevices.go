package programs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"inferplan/planner/pool/relaxation"
	"inferplan/solver/milp"
)

// MissingDevices returns the fewest devices of every pool to add so that every model has one replica of each
// stage of some pipeline. If that is not known, it returns nil. Models that can use the same devices are counted
// together.
func MissingDevices(ctx context.Context, solver milp.Solver, choice *relaxation.WaitChoice) []int {
	// Rows of the pools, with additional devices.
	m := milp.New("devices missing")
	poolRows := make([]milp.Row, len(choice.Catalogue.Problem.Pools))
	addedVars := make([]milp.Var, len(choice.Catalogue.Problem.Pools))
	for k := range choice.Catalogue.Problem.Pools {
		addedVars[k] = m.AddInt("more "+choice.Catalogue.Problem.Pools[k].Kind, 0, 1e6, 1)
		poolRows[k] = m.AddLE("devices "+choice.Catalogue.Problem.Pools[k].Kind, float64(choice.Catalogue.Problem.Pools[k].Count), milp.Term{Var: addedVars[k], Coef: -1})
	}

	// For each group of models with the same uses, as many uses as models.
	usesByModel, models := singleReplicaUses(choice)
	for _, usesKey := range slices.Sorted(maps.Keys(models)) {
		row := m.AddEQ("models", float64(len(models[usesKey])))
		for _, devices := range usesByModel[models[usesKey][0]] {
			modelsUsing := m.AddInt("", 0, float64(len(models[usesKey])), 0)
			m.AddTerm(row, modelsUsing, 1)
			for k, v := range devices {
				m.AddTerm(poolRows[k], modelsUsing, v)
			}
		}
	}

	// The fewest additional devices.
	sol, err := solver.Solve(ctx, m, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return nil
	}
	missing := make([]int, len(addedVars))
	for k, v := range addedVars {
		missing[k] = sol.Int(v)
	}
	return missing
}

// singleReplicaUses returns, for each model, the different sets of devices that a template takes with one
// replica of each stage: [model][use][pool]. models groups the models that have equal uses, by the text of
// these.
func singleReplicaUses(choice *relaxation.WaitChoice) (usesByModel [][][]float64, models map[string][]int) {
	usesByModel, models = make([][][]float64, len(choice.Catalogue.Problem.Models)), map[string][]int{}
	for _, ti := range choice.AllowedTemplates {
		t := &choice.Catalogue.Templates[ti]
		if devices := singleReplicaDevices(choice.Catalogue, t); !slices.ContainsFunc(usesByModel[t.Model], func(o []float64) bool { return slices.Equal(o, devices) }) {
			usesByModel[t.Model] = append(usesByModel[t.Model], devices)
		}
	}
	for d := range usesByModel {
		slices.SortFunc(usesByModel[d], slices.Compare)
		key := fmt.Sprint(usesByModel[d])
		models[key] = append(models[key], d)
	}
	return usesByModel, models
}
