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

// explainError replaces an infeasibility by its reason. Other errors are returned as they are.
func (x *planSearch) explainError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInfeasible):
		return newNoPlanDiagnosis(x).floorsTooHigh(ctx)
	case errors.Is(err, errNoPlan):
		return newNoPlanDiagnosis(x).tooFewDevices(ctx)
	}
	return err
}

// noPlanDiagnosis finds out why a search has no plan.
type noPlanDiagnosis struct {
	search    *planSearch
	problem   *Problem
	catalogue *templateCatalogue
	choice    *waitChoice // nil before the first relaxation
	solver    milp.Solver
}

// newNoPlanDiagnosis returns the diagnosis of a search.
func newNoPlanDiagnosis(search *planSearch) *noPlanDiagnosis {
	return &noPlanDiagnosis{search, search.problem, search.catalogue, search.choice, search.solver}
}

// floorsTooHigh returns the error for floors that are too high: it names the floors that exclude each other and
// the largest common factor at which whole devices carry them.
func (x *noPlanDiagnosis) floorsTooHigh(ctx context.Context) error {
	reason := &Infeasible{Model: -1, Constraint: "min_rps"}
	if x.search.options.NoDiagnosis {
		return reason
	}
	outcome, err := x.search.floors.largestPlan(ctx)
	if err != nil {
		return err // without floors there is no plan either
	}
	reason.Load = outcome.Value
	reason.Reason = fmt.Sprintf("the devices carry %s times the rates asked as min_rps", kind.LoadText(reason.Load))
	program := x.catalogue.newMaster(nil, x.mostServingTemplates(ctx), -1, true)
	if limits, _, err := milp.FindConflict(ctx, x.solver, program.m); err == nil {
		for _, limit := range limits {
			reason.Conflict = append(reason.Conflict, program.limitName(limit))
		}
	}
	return reason
}

// mostServingTemplates returns the templates of that wait choice under which the relaxation carries the largest
// common factor of the floors.
func (x *noPlanDiagnosis) mostServingTemplates(ctx context.Context) (set []int) {
	choices, _ := x.catalogue.waitBoundChoices()
	maxFactor := 0.0
	for _, bounds := range choices {
		allowed := x.catalogue.templatesWithin(bounds)
		program := x.catalogue.newMaster(nil, allowed, -1, false)
		for d := range x.problem.Models {
			// The row rate - theta >= 0 becomes rate - floor * theta >= 0. A model without a floor asks for
			// nothing.
			program.m.AddTerm(program.modelRows[d], program.theta, 1-x.problem.Models[d].MinRPS/x.catalogue.units.modelRPS[d])
		}
		sol, err := x.solver.Solve(ctx, program.m, milp.Options{})
		if err == nil && sol.Status == milp.Optimal && (sol.Value > maxFactor || set == nil) {
			maxFactor, set = sol.Value, allowed
		}
	}
	return set
}

// limitName returns what a limit of the relaxation stands for.
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

// tooFewDevices returns the error for a search without a plan. It says how many devices are missing for every
// model to have one replica of each stage of some pipeline, or else what is missing.
func (x *noPlanDiagnosis) tooFewDevices(ctx context.Context) error {
	reason := &Infeasible{Model: -1, Constraint: "devices"}
	if x.search.options.NoDiagnosis {
		return reason
	}
	total := 0

	// Devices for one replica of everything.
	for k, n := range x.missingDevices(ctx) {
		if n > 0 {
			reason.Devices = append(reason.Devices, MissingDevices{k, n})
			total += n
		}
	}
	if total > 0 {
		reason.Reason = fmt.Sprintf("%d models need more devices than there are: at least %d more", len(x.problem.Models), total)
		return reason
	}
	if x.problem.hasFloors() {
		// One replica of everything fits, so whole devices do not carry the floors.
		outcome, err := x.search.floors.largestPlan(ctx)
		if err != nil {
			return err
		}
		reason.Constraint, reason.Load = "min_rps", outcome.Value
		reason.Reason = fmt.Sprintf("this cluster reaches %s times the minimum rates asked, in whole devices", kind.LoadText(reason.Load))
		return reason
	}

	// Memory.
	if k, bytes := x.jointMemory(ctx); bytes > 0 {
		reason.Constraint, reason.Memory = "memory", bytes
		reason.Reason = fmt.Sprintf("%d models together need at least %d bytes on each %s, which has %d", len(x.problem.Models), bytes, x.problem.Pools[k].Kind, x.problem.Pools[k].Memory)
		return reason
	}
	reason.Reason = "no plan was found within the work limit; a higher effort may find one"
	return reason
}

// missingDevices returns the fewest devices of every pool to add so that every model has one replica of each
// stage of some pipeline. If that is not known, it returns nil. Models that can use the same devices are counted
// together.
func (x *noPlanDiagnosis) missingDevices(ctx context.Context) []int {
	// Rows of the pools, with additional devices.
	m := milp.New("devices missing")
	poolRows := make([]milp.Row, len(x.problem.Pools))
	addedVars := make([]milp.Var, len(x.problem.Pools))
	for k := range x.problem.Pools {
		addedVars[k] = m.AddInt("more "+x.problem.Pools[k].Kind, 0, 1e6, 1)
		poolRows[k] = m.AddLE("devices "+x.problem.Pools[k].Kind, float64(x.problem.Pools[k].Count), milp.Term{Var: addedVars[k], Coef: -1})
	}

	// For each group of models with the same uses, as many uses as models.
	usesByModel, models := x.singleReplicaUses()
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
	sol, err := x.solver.Solve(ctx, m, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return nil
	}
	missing := make([]int, len(addedVars))
	for k, v := range addedVars {
		missing[k] = sol.Int(v)
	}
	return missing
}

// singleReplicaUses returns, for each model, the devices of every pool that one replica of each stage of a
// template takes, without duplicates. models groups the models by the text of these uses.
func (x *noPlanDiagnosis) singleReplicaUses() (usesByModel [][][]float64, models map[string][]int) {
	usesByModel, models = make([][][]float64, len(x.problem.Models)), map[string][]int{}
	for _, ti := range x.choice.allowedTemplates {
		t := &x.catalogue.templates[ti]
		if devices := x.catalogue.singleReplicaDevices(t); !slices.ContainsFunc(usesByModel[t.Model], func(o []float64) bool { return slices.Equal(o, devices) }) {
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
func (x *noPlanDiagnosis) jointMemory(ctx context.Context) (pool int, bytes int64) {
	templates := indexesBelow(len(x.catalogue.templates))
	tightPools := x.catalogue.tightMemory(templates)

	// A program over one template of every model that minimises the memory beyond that of the devices.
	program := &integerProgram{problem: x.problem, catalogue: x.catalogue, m: milp.New("memory missing"), memoryRows: make([]milp.Row, len(x.problem.Pools))}
	for k := range x.problem.Pools {
		program.memoryRows[k] = -1
		if tightPools[k] {
			program.memoryRows[k] = program.m.AddLE("memory "+x.problem.Pools[k].Kind, 1, milp.Term{Var: program.m.AddVar("more "+x.problem.Pools[k].Kind, 0, milp.Inf, 1), Coef: -1})
		}
	}
	usedVars := program.requireOnePerModel(templates)
	sol, err := x.solver.Solve(ctx, program.m, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return 0, 0
	}

	// The bytes that those templates need.
	memory := x.problem.newResidentMemory()
	for i := range templates {
		if sol.Int(usedVars[i]) > 0 {
			memory.add(&x.catalogue.templates[i])
		}
	}
	for k := range x.problem.Pools {
		if tightPools[k] && memory.bytes[k] > x.problem.Pools[k].Memory {
			return k, memory.bytes[k]
		}
	}
	return 0, 0
}
