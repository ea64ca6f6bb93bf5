package search

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/testkit/pooldraw"
)

// The paper's own programs (PPipe, appendix A.1 and A.2) as a second
// formulation: binaries for partitions of pipelines of fixed device kinds and
// integers for their devices. Pipelines may stay unused, and there are some copies of
// each; several models, NIC limits and margins are as in the artifact. Unified is
// A.2, where all partitions of a pipeline have one batch size; A.1 leaves each
// its own and has no shares.
func appendix(p *problem.Problem, unified bool, copies int) *milp.Model {
	m := milp.New("appendix")
	m.SetSense(milp.Maximize)
	theta := m.AddVar("theta", 0, milp.Inf, 1)
	pools := make([]milp.Row, len(p.Pools))
	for k := range pools {
		pools[k] = m.AddLE("", float64(p.Pools[k].Count)) // (9), (23)
	}
	for d := range p.Models {
		model := &p.Models[d]
		served := m.AddGE("", 0, milp.Term{Var: theta, Coef: -model.Weight})
		var grow func(kinds []int)
		grow = func(kinds []int) {
			if len(kinds) > 0 {
				for range copies {
					addPipeline(m, p, model, kinds, unified, served, pools)
				}
			}
			if len(kinds) == p.MaxPartitions || len(kinds) == model.NumBlocks() {
				return
			}
			for k := range p.Pools {
				grow(append(kinds[:len(kinds):len(kinds)], k))
			}
		}
		grow(nil)
	}
	return m
}

func addPipeline(m *milp.Model, p *problem.Problem, model *stages.Model, kinds []int, unified bool, served milp.Row, pools []milp.Row) {
	end := model.NumBlocks()
	used := m.AddBool("", 0)
	x := m.AddVar("", 0, milp.Inf, 0)
	m.AddTerm(served, x, 1)
	budget := float64(model.SLO-model.Margin) / 1e6
	latency := m.AddLE("", budget) // (13), (27), in ms
	links := map[string]milp.Row{}
	link := func(position, batch, cut int) milp.Row {
		if !unified {
			batch = 0
		}
		key := fmt.Sprint(position, batch, cut)
		if _, ok := links[key]; !ok {
			links[key] = m.AddEQ("", 0)
		}
		return links[key]
	}
	for at, k := range kinds {
		one := m.AddEQ("", 0, milp.Term{Var: used, Coef: -1})  // (2), (16)
		carried := m.AddGE("", 0, milp.Term{Var: x, Coef: -1}) // (11), (14)
		for v := 1; v <= p.Pools[k].MaxShares; v++ {
			if !unified && v > 1 {
				break
			}
			for _, cost := range model.ShareCosts[k][v-1].Batches {
				for i := 0; i < end; i++ {
					for j := i + 1; j <= end; j++ {
						if (at == 0) != (i == 0) || (at == len(kinds)-1) != (j == end) || i > 0 && model.CutBytes[i-1] < 0 || j < end && model.CutBytes[j-1] < 0 {
							continue // (4) to (6), (17), (19), (20)
						}
						infer := time.Duration(0)
						for _, t := range cost.Blocks[i:j] {
							infer += max(t, time.Microsecond)
						}
						rate := float64(cost.Batch) / infer.Seconds()
						wire := func(to, cut int) float64 {
							return stages.SampleMicros(model.CutBytes[cut-1], stages.LinkGbps(&p.Pools[k], &p.Pools[to]))
						}
						spent := float64(infer) / 1e6
						if j < end {
							spent += math.Round(wire(kinds[at+1], j)*float64(cost.Batch)*1000) / 1e6
						}
						if at == 0 {
							spent += float64(model.BatchWait(cost.Batch)) / 1e6
						}
						if p.Pools[k].Gbps > 0 {
							per := float64(v * p.Pools[k].PerNode)
							if i > 0 {
								rate = min(rate, 1e6/wire(kinds[at-1], i)/per)
							}
							if j < end {
								rate = min(rate, 1e6/wire(kinds[at+1], j)/per)
							}
						}
						most := float64(p.Pools[k].Count * v)
						y := m.AddBool("", 0)
						g := m.AddInt("", 0, most, 0)
						m.AddTerm(one, y, 1)
						m.AddLE("", 0, milp.Term{Var: g, Coef: 1}, milp.Term{Var: y, Coef: -most}) // (7), (21)
						m.AddGE("", 0, milp.Term{Var: g, Coef: 1}, milp.Term{Var: y, Coef: -1})    // (8), (22)
						m.AddTerm(pools[k], g, 1/float64(v))
						m.AddTerm(carried, g, rate)
						m.AddTerm(latency, y, spent)
						if i > 0 {
							m.AddTerm(link(at-1, cost.Batch, i), y, 1) // (3), (18)
						}
						if j < end {
							m.AddTerm(link(at, cost.Batch, j), y, -1)
						}
					}
				}
			}
		}
	}
}

// On tiny instances the plan equals A.2's optimum where that has as many
// pipelines as the plan, and is never below it; A.1 without shares is never
// below the plan without shares, and what unified batches cost is logged.
func TestPlansMatchAppendixProgram(t *testing.T) {
	const copies = 2
	compared, equal, unifiedCost, sharesGain := 0, 0, 0.0, 0.0
	rapid.Check(t, func(t *rapid.T) {
		if compared == 25 {
			return // enough for a default test
		}
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 1, Pools: 2, Count: 2, Shares: 2, Blocks: 3, Batches: 2, Partitions: 2})
		pooldraw.ForgetPieces(p)        // as the paper has it
		p.Rounding = problem.Fractional // (23)
		for d := range p.Models {
			p.Models[d].EveryBatch, p.Models[d].BatchWaitMicros = false, 0
		}
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
		if err != nil {
			return
		}
		limits := milp.Options{MaxNodes: 3000, Gap: 1e-7}
		two, err := highs.Solver{}.Solve(context.Background(), appendix(p, true, copies), limits)
		if err != nil {
			t.Fatal(err)
		}
		if !two.Feasible() {
			return
		}
		compared++
		if two.Value > outcome.Value*(1+1e-5) {
			t.Errorf("A.2 reaches %v, the plan %v (bound %v)", two.Value, outcome.Value, outcome.Bound)
		}
		tuples := map[string]int{}
		many := false
		for _, pl := range outcome.Pipelines {
			key := fmt.Sprint(pl.Model)
			for _, s := range pl.Stages {
				key += fmt.Sprint("/", s.Pool)
			}
			tuples[key]++
			many = many || tuples[key] > copies
		}
		if two.Status == milp.Optimal && !many {
			equal++
			if two.Value < outcome.Value*(1-1e-5) {
				t.Errorf("A.2 proves %v, the plan claims %v", two.Value, outcome.Value)
			}
		}
		whole := *p
		whole.Pools = append([]stages.Pool(nil), p.Pools...)
		for k := range whole.Pools {
			whole.Pools[k].MaxShares = 1
		}
		plain, err := Solve(context.Background(), &whole, highs.Solver{}, problem.Options{})
		if err != nil {
			return
		}
		one, err := highs.Solver{}.Solve(context.Background(), appendix(&whole, false, copies+1), limits)
		if err != nil {
			t.Fatal(err)
		}
		if one.Status == milp.Optimal {
			if one.Value < plain.Value*(1-1e-5) {
				t.Errorf("A.1 proves %v, the plan of one batch size per pipeline claims %v", one.Value, plain.Value)
			}
			unifiedCost += 1 - plain.Value/one.Value
			sharesGain += outcome.Value/one.Value - 1
		}
	})
	t.Logf("%d instances, %d solved to the end; one batch size per pipeline costs %.2f %% on average, with shares it brings %+.2f %%",
		compared, equal, 100*unifiedCost/float64(max(equal, 1)), 100*sharesGain/float64(max(equal, 1)))
	if equal == 0 {
		t.Error("nothing was compared to the end")
	}
}
