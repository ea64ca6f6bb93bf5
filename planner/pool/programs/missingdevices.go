package programs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/relaxation"
	"inferplan/solver/milp"
)

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
