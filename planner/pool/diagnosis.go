package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// errNoPlan means that no whole replicas serve every model.
var errNoPlan = errors.New("no plan serves every model")

// explainError replaces an error that says only that there is no plan by one that names the reason: floors (the
// least rates asked for) that exclude each other, or missing devices or memory. Other errors are returned as
// they are.
func (s *planSearch) explainError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInfeasible):
		return floorsTooHigh(ctx, s)
	case errors.Is(err, errNoPlan):
		return tooFewDevices(ctx, s)
	}
	return err
}

// floorsTooHigh returns the error for floors (least rates of models) that are too high: it names the floors and
// pools that exclude each other, and the largest common factor at which whole devices carry the floors.
func floorsTooHigh(ctx context.Context, search *planSearch) error {
	reason := &kind.InfeasibleError{Constraint: "min_rps"}
	if search.options.NoDiagnosis {
		return reason
	}
	outcome, err := search.floors.largestPlan(ctx)
	if err != nil {
		return err // without floors there is no plan either
	}
	reason.Nearest.LoadFactor = outcome.Value
	reason.Reason = fmt.Sprintf("the devices carry %s times the rates asked as min_rps", kind.LoadText(outcome.Value))
	program := newMasterProgram(search.catalogue, nil, mostServingTemplates(ctx, search), -1, true)
	if limits, _, err := milp.FindConflict(ctx, search.solver, program.m); err == nil {
		for _, limit := range limits {
			reason.Conflict = append(reason.Conflict, program.limitName(limit))
		}
	}
	return reason
}

// mostServingTemplates returns the templates of one wait choice (bounds on how long batches wait for others on
// time-shared pools): of that under which the linear program carries the largest common factor of the floors.
func mostServingTemplates(ctx context.Context, search *planSearch) (set []int) {
	choices, _ := listWaitBounds(search.catalogue)
	maxFactor := 0.0
	for _, bounds := range choices {
		allowed := search.catalogue.templatesWithin(bounds)
		program := newMasterProgram(search.catalogue, nil, allowed, -1, false)
		for d := range search.problem.Models {
			// The row rate - theta >= 0 becomes rate - floor * theta >= 0. A model without a floor asks for
			// nothing.
			program.m.AddTerm(program.modelRows[d], program.theta, 1-search.problem.Models[d].MinRPS/search.catalogue.units.modelRPS[d])
		}
		sol, err := search.solver.Solve(ctx, program.m, milp.Options{})
		if err == nil && sol.Status == milp.Optimal && (sol.Value > maxFactor || set == nil) {
			maxFactor, set = sol.Value, allowed
		}
	}
	return set
}

// limitName returns in words what a row of the linear program stands for: a model's floor or a pool's devices.
func (l *masterProgram) limitName(limit milp.Limit) string {
	for d := range l.problem.Models {
		if l.floorRows[d] == limit.Row {
			return fmt.Sprintf("at least %g requests/s of %s", l.problem.Models[d].MinRPS, l.problem.Models[d].Name)
		}
	}
	for k := range l.problem.Pools {
		if l.poolRows[k] == limit.Row {
			return fmt.Sprintf("%d devices of kind %s", l.problem.Pools[k].Count, l.problem.Pools[k].Kind)
		}
	}
	return limit.String()
}

// tooFewDevices returns the error for a search that found no plan which serves every model. It says how many
// devices are missing for every model to have one replica of each stage of some pipeline. If none are, it says
// which part of the least rates the cluster reaches, or which memory is too small, or else that more effort may
// find a plan.
func tooFewDevices(ctx context.Context, search *planSearch) error {
	reason := &kind.InfeasibleError{Constraint: "devices"}
	if search.options.NoDiagnosis {
		return reason
	}
	total := 0

	// Devices for one replica of everything.
	for k, n := range missingDevices(ctx, search) {
		if n > 0 {
			reason.Nearest.Devices = append(reason.Nearest.Devices, kind.MissingCount{Device: search.problem.Pools[k].Kind, Count: n})
			total += n
		}
	}
	if total > 0 {
		reason.Reason = fmt.Sprintf("%d models need more devices than there are: at least %d more", len(search.problem.Models), total)
		return reason
	}
	if search.problem.hasFloors() {
		// One replica of everything fits, so whole devices do not carry the floors.
		outcome, err := search.floors.largestPlan(ctx)
		if err != nil {
			return err
		}
		reason.Constraint, reason.Nearest.LoadFactor = "min_rps", outcome.Value
		reason.Reason = fmt.Sprintf("this cluster reaches %s times the minimum rates asked, in whole devices", kind.LoadText(outcome.Value))
		return reason
	}

	// Memory.
	if k, bytes := jointMemory(ctx, search); bytes > 0 {
		reason.Constraint, reason.Nearest.MemoryBytes = "memory", bytes
		reason.Reason = fmt.Sprintf("%d models together need at least %d bytes on each %s, which has %d", len(search.problem.Models), bytes, search.problem.Pools[k].Kind, search.problem.Pools[k].Memory)
		return reason
	}
	reason.Reason = "no plan was found within the work limit; a higher effort may find one"
	return reason
}

// missingDevices returns the fewest devices of every pool to add so that every model has one replica of each
// stage of some pipeline. If that is not known, it returns nil. Models that can use the same devices are counted
// together.
func missingDevices(ctx context.Context, search *planSearch) []int {
	// Rows of the pools, with additional devices.
	m := milp.New("devices missing")
	poolRows := make([]milp.Row, len(search.problem.Pools))
	addedVars := make([]milp.Var, len(search.problem.Pools))
	for k := range search.problem.Pools {
		addedVars[k] = m.AddInt("more "+search.problem.Pools[k].Kind, 0, 1e6, 1)
		poolRows[k] = m.AddLE("devices "+search.problem.Pools[k].Kind, float64(search.problem.Pools[k].Count), milp.Term{Var: addedVars[k], Coef: -1})
	}

	// For each group of models with the same uses, as many uses as models.
	usesByModel, models := singleReplicaUses(search)
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
	sol, err := search.solver.Solve(ctx, m, milp.Options{MaxNodes: 10000})
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
func singleReplicaUses(search *planSearch) (usesByModel [][][]float64, models map[string][]int) {
	usesByModel, models = make([][][]float64, len(search.problem.Models)), map[string][]int{}
	for _, ti := range search.choice.allowedTemplates {
		t := &search.catalogue.templates[ti]
		if devices := search.catalogue.singleReplicaDevices(t); !slices.ContainsFunc(usesByModel[t.Model], func(o []float64) bool { return slices.Equal(o, devices) }) {
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

// jointMemory returns a pool whose memory is too small for every model to have some pipeline, and the bytes per
// device that would do, as few as possible in relation to what the devices have. If memory is enough, it returns
// 0 bytes.
func jointMemory(ctx context.Context, search *planSearch) (pool int, bytes int64) {
	templates := indexesBelow(len(search.catalogue.templates))
	tightPools := search.catalogue.tightMemory(templates)

	// A program over one template of every model that minimises the memory beyond that of the devices.
	program := &integerProgram{problem: search.problem, catalogue: search.catalogue, m: milp.New("memory missing"), memoryRows: make([]milp.Row, len(search.problem.Pools))}
	for k := range search.problem.Pools {
		program.memoryRows[k] = -1
		if tightPools[k] {
			program.memoryRows[k] = program.m.AddLE("memory "+search.problem.Pools[k].Kind, 1, milp.Term{Var: program.m.AddVar("more "+search.problem.Pools[k].Kind, 0, milp.Inf, 1), Coef: -1})
		}
	}
	usedVars := program.requireOnePerModel(templates)
	sol, err := search.solver.Solve(ctx, program.m, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return 0, 0
	}

	// The bytes that those templates need.
	memory := newResidentMemory(search.problem)
	for i := range templates {
		if sol.Int(usedVars[i]) > 0 {
			memory.add(&search.catalogue.templates[i])
		}
	}
	for k := range search.problem.Pools {
		if tightPools[k] && memory.bytes[k] > search.problem.Pools[k].Memory {
			return k, memory.bytes[k]
		}
	}
	return 0, 0
}
