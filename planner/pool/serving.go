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
func (x *phases) serving(ctx context.Context) (set []int, none bool, err error) {
	// The program of one template of every model, within the memory.
	q := &program{catalogue: x.catalogue, m: milp.New("one pipeline of every model"), memory: make([]milp.Row, len(x.Pools))}
	tight := x.tightMemory(x.allowed)
	for k := range x.Pools {
		q.memory[k] = -1
		if tight[k] {
			q.memory[k] = q.m.AddLE("memory "+x.Pools[k].Kind, 1)
		}
	}
	useful := slices.DeleteFunc(slices.Clone(x.allowed), func(i int) bool { return math.IsInf(x.loss[i], 1) }) // other templates carry nothing
	y := q.onePerModel(useful)

	// Each template takes the devices of one replica of each stage, and costs its loss.
	pools := make([]milp.Row, len(x.Pools))
	for k := range pools {
		pools[k] = q.m.AddLE("devices "+x.Pools[k].Kind, float64(x.Pools[k].Count))
	}
	for i, ti := range useful {
		q.m.SetObj(y[i], x.loss[ti])
		for k, n := range x.leastDevices(&x.templates[ti]) {
			if n > 0 {
				q.m.AddTerm(pools[k], y[i], n)
			}
		}
	}

	// Solve it.
	sol, err := x.s.Solve(ctx, q.m, milp.Options{Gap: 0.05, MaxNodes: servingNodes, Seed: x.o.Seed})
	if err != nil {
		return nil, false, fmt.Errorf("solving for one pipeline of every model: %w", err)
	}
	if !sol.Feasible() {
		return nil, sol.Status == milp.Infeasible && !x.partial, nil
	}
	for i, ti := range useful {
		if sol.Int(y[i]) > 0 {
			set = append(set, ti)
		}
	}
	return set, false, nil
}

// requireOnePerModel asks for one template of a set for every model, within the rows of memory. It returns the
// variables that say which templates are used.
func (q *program) onePerModel(set []int) []milp.Var {
	var one []milp.Row
	for d := range q.Models {
		one = append(one, q.m.AddEQ("model "+q.Models[d].Name, 1))
	}
	y := make([]milp.Var, len(set))
	for i, ti := range set {
		t := &q.templates[ti]
		y[i] = q.m.AddBool("", 0)
		q.m.AddTerm(one[t.Model], y[i], 1)
		q.addMemory(t, y[i])
	}
	return y
}

// singleReplicaDevices returns what one replica of each stage of a template takes of every pool.
func (c *catalogue) leastDevices(t *stages.Template) []float64 {
	use := make([]float64, len(c.Pools))
	for si := range t.Stages {
		s := &t.Stages[si]
		switch {
		case c.Pools[s.Pool].Time:
		case c.Rounding == Slot:
			use[s.Pool]++
		default:
			use[s.Pool] += 1 / float64(s.Share)
		}
	}
	return use
}
