package programs

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// If memory is tight, the relaxation does not say which pipelines fit together, because it knows no memory.
// Whether every model can have some pipeline is a small program of its own. Its solution is where the search
// starts, or its infeasibility is where it ends.

// servingNodes bounds the branch-and-bound nodes of the program for one pipeline of every model.
const servingNodes = 10000

// OnePipelineEach returns templates, one for each model, that fit the devices and the memory together with one replica
// of each stage. Of several such choices it takes about the one of the least sum of losses (a template's loss: how far
// every plan with it stays below the bound). A search starts from them if memory is tight, and the relaxation, which
// knows no memory, may give no plan. They are indexes in the catalogue, of the templates that the wait choice allows (the
// bounds in force on how long batches wait on time-shared pools). If none are found, it returns nil. impossible then
// reports a proof that no plan under the wait choice serves every model: all templates are known, and no choice fits.
func OnePipelineEach(ctx context.Context, solver milp.Solver, choice *relaxation.WaitChoice, seed int32) (templates []int, impossible bool, err error) {
	// The program of one template of every model, within the memory of time-shared devices. A pool has a row for it if all
	// allowed templates together need more than a device has. Templates of which not even one replica of each stage fits
	// are left out.
	catalogue := choice.Catalogue
	program := &Program{problem: catalogue.Problem, catalogue: catalogue, Model: milp.New("one pipeline of every model")}
	program.addMemoryRows(choice.AllowedTemplates)
	carriesNothing := func(ti int) bool { return math.IsInf(choice.Losses[ti], 1) } // not even one replica of each stage fits
	usefulTemplates := slices.DeleteFunc(slices.Clone(choice.AllowedTemplates), carriesNothing)
	usedVars := program.requireOnePerModel(usefulTemplates)

	// On exclusive pools each template takes the devices of one replica of each stage. It costs its loss.
	pools := make([]milp.Row, len(catalogue.Problem.Pools))
	for k := range pools {
		pools[k] = program.Model.AddLE("devices "+catalogue.Problem.Pools[k].Kind, float64(catalogue.Problem.Pools[k].Count))
	}
	for i, ti := range usefulTemplates {
		program.Model.SetObj(usedVars[i], choice.Losses[ti])
		for k, n := range singleReplicaDevices(catalogue, &catalogue.Templates[ti]) {
			if n > 0 {
				program.Model.AddTerm(pools[k], usedVars[i], n)
			}
		}
	}

	// Solve it. No solution is a proof only if all templates are known.
	sol, err := solver.Solve(ctx, program.Model, milp.Options{Gap: 0.05, MaxNodes: servingNodes, Seed: seed})
	if err != nil {
		return nil, false, fmt.Errorf("solving for one pipeline of every model: %w", err)
	}
	if !sol.Feasible() {
		return nil, sol.Status == milp.Infeasible && !catalogue.Incomplete, nil
	}
	for i, ti := range usefulTemplates {
		if sol.Int(usedVars[i]) > 0 {
			templates = append(templates, ti)
		}
	}
	return templates, false, nil
}

// requireOnePerModel adds to a program, which has its rows of memory, that each model uses just one template of a set
// (indexes in the catalogue). It returns, by place in the set, the variables that are 1 if the template is used.
func (q *Program) requireOnePerModel(templates []int) []milp.Var {
	modelRows := lists.Map(len(q.problem.Models), func(d int) milp.Row { return q.Model.AddEQ("model "+q.problem.Models[d].Name, 1) })
	usedVars := make([]milp.Var, len(templates))
	for i, ti := range templates {
		t := &q.catalogue.Templates[ti]
		usedVars[i] = q.Model.AddBool("", 0)
		q.Model.AddTerm(modelRows[t.Model], usedVars[i], 1)
		q.addMemoryTerms(t, usedVars[i])
	}
	return usedVars
}

// singleReplicaDevices returns, by pool, the devices that one replica of each stage of a template takes: a whole one
// each under the slot rule, by which no other stage shares it, else its share. On time-shared pools, where a stage takes
// only time, it is 0.
func singleReplicaDevices(c *templates.Catalogue, t *stages.Template) []float64 {
	devices := make([]float64, len(c.Problem.Pools))
	for si := range t.Stages {
		s := &t.Stages[si]
		switch {
		case c.Problem.Pools[s.Pool].TimeShared:
		case c.Problem.Rounding == problem.Slot:
			devices[s.Pool]++
		default:
			devices[s.Pool] += 1 / float64(s.Share)
		}
	}
	return devices
}

// JointMemory returns the first time-shared pool of which a device's memory is too small for every model to have some
// pipeline, and the bytes per device that would do, for the reason why there is no plan. It picks one template for each
// model so that devices lack the least memory: as a part of the memory that they have, summed over pools. If memory is
// enough, or the solver finds no answer, it returns 0 bytes.
func JointMemory(ctx context.Context, solver milp.Solver, catalogue *templates.Catalogue) (pool int, bytes int64) {
	templateSet := catalogue.AllTemplates()

	// A program over one template of every model that minimises the memory beyond that of the devices.
	program := &Program{problem: catalogue.Problem, catalogue: catalogue, Model: milp.New("memory missing")}
	program.addMemoryRows(templateSet)
	for k, row := range program.memoryRows {
		if row >= 0 {
			missingVar := program.Model.AddVar("more "+catalogue.Problem.Pools[k].Kind, 0, milp.Inf, 1)
			program.Model.AddTerm(row, missingVar, -1)
		}
	}
	usedVars := program.requireOnePerModel(templateSet)
	sol, err := solver.Solve(ctx, program.Model, milp.Options{MaxNodes: 10000})
	if err != nil || !sol.Feasible() {
		return 0, 0
	}

	// The bytes that those templates need. The set holds all templates, so a place in it is the index in the catalogue.
	memory := templates.NewResidentMemory(catalogue.Problem)
	for i := range templateSet {
		if sol.Int(usedVars[i]) > 0 {
			memory.Add(&catalogue.Templates[i])
		}
	}
	for k := range catalogue.Problem.Pools {
		if program.memoryRows[k] >= 0 && memory.Bytes[k] > catalogue.Problem.Pools[k].Memory {
			return k, memory.Bytes[k]
		}
	}
	return 0, 0
}
