package deploy

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/sim/llm"
	"inferplan/solver/milp"
)

// LeastWork is the time of an instance, in seconds, that a request takes at least,
// however batches are made up and ordered. With I iterations, of which none decodes
// more than sequences tokens, an instance takes
//
//	base*I + sequence*D + context*C + attention*A + prompt*max(0, N - hinge*I)
//
// for D tokens decoded over C tokens of context, and N tokens of prompts; I is at
// least D/sequences. Without the maximum, and with a prompt's price so low
// that more iterations do not pay, that is a sum over requests. What is left out
// (iterations that are not full, prompts beside decoding, swaps, evictions, loads)
// only takes longer. A prompt of a session may be cached: it counts nothing.
func LeastWork(it *formats.Iteration, sequences int, r llm.Request, cached bool) float64 {
	base, perSequence := it.BaseNS+it.CPUNS, it.SequenceNS+it.CPUSequenceNS
	d := float64(max(r.Output-1, 0))
	read := d*float64(r.Prompt) + d*(d-1)/2
	prompt := it.PromptNS
	if it.HingeTokens > 0 {
		prompt = min(prompt, base/it.HingeTokens)
	}
	n, pairs := float64(r.Prompt), float64(r.Prompt)*float64(r.Prompt)/2
	if cached {
		n, pairs = 0, 0
	}
	iterations := d / float64(max(sequences, 1))
	ns := (base-prompt*it.HingeTokens)*iterations + perSequence*d + it.ContextNS*read + it.AttentionNS*pairs + prompt*n
	return max(ns, 0) / 1e9
}

// piece is a part of an item's requests: those whose work is alike.
type piece struct {
	item int
	mass float64   // share of the item's requests
	work []float64 // seconds of an instance by kind; infinite: it cannot run there
}

// pieces parts the requests of every item by their work, the last part being those
// that may be late.
func (p *Problem) pieces() []piece {
	var out []piece
	for i := range p.Items {
		c, m := &p.Classes[p.Items[i].Class], &p.Models[p.Items[i].Model]
		works := make([][]float64, len(c.Sample))
		for n, r := range c.Sample {
			works[n] = make([]float64, len(p.Kinds))
			for k := range p.Kinds {
				works[n][k] = math.Inf(1)
				if on := m.On[k]; on != nil {
					works[n][k] = LeastWork(&on.Iteration, p.most(p.Items[i].Model, k), r, c.Sessions != nil)
				}
			}
		}
		first := slices.IndexFunc(works[0], func(w float64) bool { return !math.IsInf(w, 1) })
		slices.SortFunc(works, func(a, b []float64) int { return cmp.Compare(a[first], b[first]) })
		for _, cut := range cuts(len(works), c.Share) {
			x := piece{item: i, mass: float64(cut[1]-cut[0]) / float64(len(works)), work: make([]float64, len(p.Kinds))}
			for k := range p.Kinds {
				for _, w := range works[cut[0]:cut[1]] {
					x.work[k] += w[k] / float64(cut[1]-cut[0])
				}
			}
			out = append(out, x)
		}
	}
	return out
}

// cuts are ten parts of a list and the part that may be late.
func cuts(n int, share float64) [][2]int {
	const parts = 10
	kept, at := min(max(int(share*float64(n)), 1), n), 0
	var out [][2]int
	for i := range parts {
		if to := (i + 1) * kept / parts; to > at {
			out = append(out, [2]int{at, to})
			at = to
		}
	}
	if at < n {
		out = append(out, [2]int{at, n})
	}
	return out
}

// Goal is what is bounded.
type Goal uint8

// The goals: the price of the instances, the requests in time per second on all
// devices, and the factor on all rates.
const (
	Price Goal = iota
	Goodput
	Factor
)

// Floor bounds a goal in the long run, for any order of requests and any assignment
// to servers: the work of requests in time fits the time of the instances. It is the
// least price, or the most goodput or factor.
func (p *Problem) Floor(ctx context.Context, solver milp.Solver, goal Goal) (float64, error) {
	m := milp.New("work of instances")
	if goal != Price {
		m.SetSense(milp.Maximize)
	}
	factor := milp.Var(-1)
	if goal == Factor {
		factor = m.AddVar("factor", 0, milp.Inf, 1)
	}
	capacity := make([][]milp.Term, len(p.Kinds))
	intime := make([][]milp.Term, len(p.Classes))
	mass := make([]float64, len(p.Classes))
	for i := range p.Items {
		mass[p.Items[i].Class] += p.Items[i].RPS
	}
	for _, x := range p.pieces() {
		rate, class := p.Items[x.item].RPS*x.mass, p.Items[x.item].Class
		var served []milp.Term
		for k := range p.Kinds {
			if math.IsInf(x.work[k], 1) {
				continue
			}
			obj := 0.0
			if goal == Goodput {
				obj = rate
			}
			v := m.AddVar("", 0, milp.Inf, obj)
			served = append(served, milp.Term{Var: v, Coef: 1})
			capacity[k] = append(capacity[k], milp.Term{Var: v, Coef: rate * x.work[k]})
			intime[class] = append(intime[class], milp.Term{Var: v, Coef: rate})
		}
		if goal == Factor {
			m.AddLE("", 0, append(served, milp.Term{Var: factor, Coef: -1})...)
		} else {
			m.AddLE("", 1, served...)
		}
	}
	for c := range p.Classes {
		switch goal {
		case Price:
			m.AddGE("", p.Classes[c].Share*mass[c], intime[c]...)
		case Factor:
			m.AddGE("", 0, append(intime[c], milp.Term{Var: factor, Coef: -p.Classes[c].Share * mass[c]})...)
		}
	}
	for k := range p.Kinds {
		price := 0.0
		if goal == Price {
			price = p.Kinds[k].Price
		}
		n := m.AddInt("", 0, float64(p.Kinds[k].Most), price)
		m.AddLE("", 0, append(capacity[k], milp.Term{Var: n, Coef: -1})...)
	}
	sol, err := solver.Solve(ctx, m, milp.Options{MaxNodes: 2000})
	switch {
	case err != nil:
		return 0, fmt.Errorf("solving for the bound by work: %w", err)
	case sol.Status == milp.Infeasible:
		return math.Inf(1), nil
	case math.IsNaN(sol.Bound):
		return 0, fmt.Errorf("the program of the bound by work ended with status %s", sol.Status)
	}
	return sol.Bound, nil
}
