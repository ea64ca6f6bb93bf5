package pool

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// If memory is tight, the relaxation does not say which pipelines fit together, because it knows no memory.
// Whether every model can have some pipeline is a small program of its own. Its solution is where the search
// starts, or its infeasibility is where it ends.

// servingNodes bounds the branch-and-bound nodes of the program for one pipeline of every model.
const servingNodes = 10000

// onePipelineEach returns templates, one of every model, that fit the devices with one replica of each stage,
// and of those the ones of least loss. impossible reports a proof that no plan of the wait choice serves every
// model.
func (x *planImprover) onePipelineEach(ctx context.Context) (templates []int, impossible bool, err error) {
	// The program of one template of every model, within the memory.
	program := &integerProgram{templateCatalogue: x.templateCatalogue, m: milp.New("one pipeline of every model"), memoryRows: make([]milp.Row, len(x.Pools))}
	tightPools := x.tightMemory(x.allowedTemplates)
	for k := range x.Pools {
		program.memoryRows[k] = -1
		if tightPools[k] {
			program.memoryRows[k] = program.m.AddLE("memory "+x.Pools[k].Kind, 1)
		}
	}
	useful := slices.DeleteFunc(slices.Clone(x.allowedTemplates), func(i int) bool { return math.IsInf(x.losses[i], 1) }) // other templates carry nothing
	usedVars := program.requireOnePerModel(useful)

	// Each template takes the devices of one replica of each stage, and costs its loss.
	pools := make([]milp.Row, len(x.Pools))
	for k := range pools {
		pools[k] = program.m.AddLE("devices "+x.Pools[k].Kind, float64(x.Pools[k].Count))
	}
	for i, ti := range useful {
		program.m.SetObj(usedVars[i], x.losses[ti])
		for k, n := range x.singleReplicaDevices(&x.templates[ti]) {
			if n > 0 {
				program.m.AddTerm(pools[k], usedVars[i], n)
			}
		}
	}

	// Solve it.
	sol, err := x.solver.Solve(ctx, program.m, milp.Options{Gap: 0.05, MaxNodes: servingNodes, Seed: x.options.Seed})
	if err != nil {
		return nil, false, fmt.Errorf("solving for one pipeline of every model: %w", err)
	}
	if !sol.Feasible() {
		return nil, sol.Status == milp.Infeasible && !x.incomplete, nil
	}
	for i, ti := range useful {
		if sol.Int(usedVars[i]) > 0 {
			templates = append(templates, ti)
		}
	}
	return templates, false, nil
}

// requireOnePerModel asks for one template of a set for every model, within the rows of memory. It returns the
// variables that say which templates are used.
func (q *integerProgram) requireOnePerModel(templates []int) []milp.Var {
	var modelRows []milp.Row
	for d := range q.Models {
		modelRows = append(modelRows, q.m.AddEQ("model "+q.Models[d].Name, 1))
	}
	usedVars := make([]milp.Var, len(templates))
	for i, ti := range templates {
		t := &q.templates[ti]
		usedVars[i] = q.m.AddBool("", 0)
		q.m.AddTerm(modelRows[t.Model], usedVars[i], 1)
		q.addMemoryTerms(t, usedVars[i])
	}
	return usedVars
}

// singleReplicaDevices returns what one replica of each stage of a template takes of every pool.
func (c *templateCatalogue) singleReplicaDevices(t *stages.Template) []float64 {
	devices := make([]float64, len(c.Pools))
	for si := range t.Stages {
		s := &t.Stages[si]
		switch {
		case c.Pools[s.Pool].TimeShared:
		case c.Rounding == Slot:
			devices[s.Pool]++
		default:
			devices[s.Pool] += 1 / float64(s.Share)
		}
	}
	return devices
}
