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

// MinRequestWork returns the least time of an instance that a request takes, in seconds, in whatever
// batches and order. With I iterations, each of which decodes at most `sequences` tokens, an instance takes
//
//	base·I + sequence·D + context·C + attention·A + prompt·max(0, N - hinge·I)
//
// for D tokens decoded over C tokens of context, and N tokens of prompts, where I is at least D /
// sequences. Without the maximum, and with a prompt token so cheap that further iterations do not pay
// (promptTokenCost), this is a sum over requests. Everything left out (iterations that are not full,
// prompts beside decoding, swaps, evictions, loads) only takes longer. The prompt of a session may be
// cached, and then counts nothing.
func LeastWork(it *formats.Iteration, sequences int, r llm.Request, cached bool) float64 {
	iterations := decoded(sequences, r)
	if !cached {
		return Part(it, r, iterations, true)
	}
	ns := (it.SequenceNS+it.CPUSequenceNS)*float64(max(r.Output-1, 0)) + it.ContextNS*read(r)
	return EachIteration(it)*iterations + max(ns, 0)/1e9
}

// requestPart is a part of an item's requests with similar work.
type piece struct {
	item int
	mass float64   // share of the item's requests
	work []float64 // seconds of an instance, by kind. If it cannot run there, it is infinite.
	// tokens is how many a request decodes on average, maxOutput the longest answer.
	tokens, longest float64
}

// requestParts divides the requests of every item by their work. The last part of each item has those that
// may be late.
func (b *bounding) pieces() []piece {
	p := b.Problem
	var out []piece
	for i := range p.Items {
		c, m := &p.Classes[p.Items[i].Class], &p.Models[p.Items[i].Model]

		// Compute the work of each sampled request on each kind, and sort the requests by it.
		works := make([][]float64, len(c.Sample))
		order := make([]int, len(c.Sample))
		for n, r := range c.Sample {
			order[n], works[n] = n, make([]float64, len(p.Kinds))
			for k := range p.Kinds {
				works[n][k] = math.Inf(1)
				if m.On[k] != nil {
					works[n][k] = b.work(p.Items[i].Model, k, r, c.Sessions != nil)
				}
			}
		}
		first := slices.IndexFunc(works[0], func(w float64) bool { return !math.IsInf(w, 1) })
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(works[a][first], works[b][first]) })

		// Average the work within each part.
		for _, cut := range cuts(len(works), c.Share) {
			x, n := piece{item: i, mass: float64(cut[1]-cut[0]) / float64(len(works)), work: make([]float64, len(p.Kinds))}, float64(cut[1]-cut[0])
			for _, r := range order[cut[0]:cut[1]] {
				for k := range p.Kinds {
					x.work[k] += works[r][k] / n
				}
				x.tokens += float64(max(c.Sample[r].Output-1, 0)) / n
				x.longest = max(x.longest, float64(c.Sample[r].Output))
			}
			out = append(out, x)
		}
	}
	return out
}

// sampleSpans divides n sorted requests into ten parts of those that must be in time, and one of those that
// may be late.
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

// Goal is what a bound is for.
type Goal uint8

// The goals: the price of the instances, the requests in time per second on all devices, and the factor on
// all rates.
const (
	Price Goal = iota
	Goodput
	Factor
)

// workProgram is the mixed-integer program of a work bound.
type bounding struct {
	*Problem
	goal     Goal
	m        *milp.Model
	factor   milp.Var
	capacity [][]milp.Term // time of instances that requests and iterations take, by kind
	intime   [][]milp.Term // requests in time, by class
	counted  []counted     // by model
	free     [][]bool      // by model and kind: the iterations hide the prompts
}

// modelIterations counts the iterations of a model as variables of their own. They are at least those of
// full batches, and at least those that some item's requests need which come one at a time and share none.
type counted struct {
	item  int           // see sparseItem. If it is -1, the work of requests contains the iterations.
	turns []milp.Var    // iterations per second, by kind
	full  [][]milp.Term // the negative of the iterations of full batches, by kind
	late  []milp.Term   // the negative of the iterations that late requests do not need
	least float64       // iterations per second if all requests of the item were late. Below 0 it demands none.
}

// WorkBound returns a bound of a goal that holds in the long run, for any order of requests and any
// assignment to servers: the work of the requests in time must fit into the time of the instances. It
// returns the least price, or the largest goodput or factor. If the work does not fit at all, it returns
// +Inf.
func (p *Problem) Floor(ctx context.Context, solver milp.Solver, goal Goal) (float64, error) {
	b := &bounding{Problem: p, goal: goal, m: milp.New("work of instances"), factor: -1, capacity: make([][]milp.Term, len(p.Kinds)), intime: make([][]milp.Term, len(p.Classes))}
	if goal != Price {
		b.m.SetSense(milp.Maximize)
	}
	if goal == Factor {
		b.factor = b.m.AddVar("factor", 0, milp.Inf, 1)
	}

	// Add iterations, then the requests by parts, then the totals.
	b.begin()
	for _, x := range b.pieces() {
		b.add(&x)
	}
	b.end()
	sol, err := solver.Solve(ctx, b.m, milp.Options{MaxNodes: 2000})
	switch {
	case err != nil:
		return 0, fmt.Errorf("solving for the bound by work: %w", err)
	case sol.Status == milp.Infeasible:
		return math.Inf(1), nil
	case math.IsNaN(sol.Bound) && ctx.Err() != nil:
		return 0, fmt.Errorf("solving for the bound by work: %w", ctx.Err())
	case math.IsNaN(sol.Bound):
		return 0, fmt.Errorf("the program of the bound by work ended with status %s", sol.Status)
	}
	return sol.Bound, nil
}

// addIterations adds the variables of iterations for models whose requests are often alone. Under goals
// other than the price there are none, because all requests may be late or the rates are not known.
func (b *bounding) begin() {
	b.counted, b.free = make([]counted, len(b.Models)), make([][]bool, len(b.Models))
	for m := range b.Models {
		c := &b.counted[m]
		if c.item = -1; b.goal == Price {
			c.item = few(b.Problem, m)
		}
		b.free[m] = b.hidden(m, c.item)
		if c.item < 0 {
			continue
		}
		c.turns, c.full = make([]milp.Var, len(b.Kinds)), make([][]milp.Term, len(b.Kinds))
		for k := range b.Kinds {
			if on := b.Models[m].On[k]; on != nil {
				c.turns[k] = b.m.AddVar("", 0, milp.Inf, 0)
				b.capacity[k] = append(b.capacity[k], milp.Term{Var: c.turns[k], Coef: b.each(m, k)})
			}
		}
	}
}

// kindsHidingPrompts returns, by kind, whether a model has so many iterations that they hide its prompts.
// If so, iterations count with all of their base, and prompts as nothing. Both ways of counting stay below
// every run; this one is higher there.
func (b *bounding) hidden(model, few int) []bool {
	out := make([]bool, len(b.Kinds))
	for k, on := range b.Models[model].On {
		if on == nil {
			continue
		}

		// Compare the prompt tokens per second with what the iterations per second hide.
		turns, prompts := 0.0, 0.0
		for _, i := range b.of(model) {
			c := &b.Classes[b.Items[i].Class]
			prompt, output, _ := moments(c.Sample)
			turns += b.Items[i].RPS * max(output-1, 0) / float64(max(b.most(model, k), 1))
			if c.Sessions == nil {
				prompts += b.Items[i].RPS * prompt
			}
		}
		if few >= 0 {
			_, output, _ := moments(b.Classes[b.Items[few].Class].Sample)
			turns = max(turns, single(b.Problem, few)*output)
		}
		out[k] = prompts < on.Iteration.HingeTokens*turns
	}
	return out
}

// iterationCost returns the time of an iteration of a model beside the work of its requests, in seconds.
func (b *bounding) each(model, kind int) float64 {
	it := &b.Models[model].On[kind].Iteration
	if b.free[model][kind] {
		return (it.BaseNS + it.CPUNS) / 1e9
	}
	return EachIteration(it)
}

// requestWork returns the least work of a request of a model on a kind, in seconds.
func (b *bounding) work(model, kind int, r llm.Request, cached bool) float64 {
	it, sequences := &b.Models[model].On[kind].Iteration, b.most(model, kind)
	if !b.free[model][kind] {
		return LeastWork(it, sequences, r, cached)
	}
	work := Part(it, r, decoded(sequences, r), false)
	if cached {
		work -= it.AttentionNS * float64(r.Prompt) * float64(r.Prompt) / 2 / 1e9
	}
	return work
}

// sparseItem returns the item of a model whose requests need the most iterations if none comes before the
// one before it is due, as far as these are more than full batches of all the model's requests need. If
// there is none, it returns -1. It needs Poisson arrivals: then the next such request comes a mean time
// between arrivals after the SLO of the last.
func few(p *Problem, model int) int {
	if p.Arrivals != nil && p.Arrivals.Process != "poisson" || p.Replay != nil {
		return -1
	}
	best, most, batched := -1, 0.0, 0.0
	for _, i := range p.of(model) {
		c := &p.Classes[p.Items[i].Class]
		_, output, _ := moments(c.Sample)
		batched += p.Items[i].RPS * output / float64(max(1, slices.Max(p.Caps)))
		if turns := single(p, i) * output; c.Of == formats.OfE2E && c.Sessions == nil && turns > most {
			best, most = i, turns
		}
	}
	if most <= batched {
		return -1
	}
	return best
}

// isolatedRate returns the rate of those requests of an item that come after the previous one of them is
// due, in requests per second.
func single(p *Problem, item int) float64 {
	if p.Items[item].RPS == 0 {
		return 0
	}
	return 1 / (1/p.Items[item].RPS + p.Classes[p.Items[item].Class].SLO.Seconds())
}

// addPart adds a part of an item's requests: what share of it is served in time on each kind, and the work
// of that.
func (b *bounding) add(x *piece) {
	item := &b.Items[x.item]
	rate, model := item.RPS*x.mass, item.Model
	c := &b.counted[model]
	var served []milp.Term
	for k := range b.Kinds {
		if math.IsInf(x.work[k], 1) {
			continue
		}
		obj, work := 0.0, x.work[k]
		if b.goal == Goodput {
			obj = rate
		}
		v := b.m.AddVar("", 0, milp.Inf, obj)

		// If iterations are counted by themselves, they are no part of the work.
		if c.item >= 0 {
			turns := x.tokens / float64(b.most(model, k))
			work = max(0, work-turns*b.each(model, k))
			c.full[k] = append(c.full[k], milp.Term{Var: v, Coef: -rate * turns})
		}
		if c.item == x.item {
			c.late = append(c.late, milp.Term{Var: v, Coef: -rate * x.longest})
		}
		served = append(served, milp.Term{Var: v, Coef: 1})
		b.capacity[k] = append(b.capacity[k], milp.Term{Var: v, Coef: rate * work})
		b.intime[item.Class] = append(b.intime[item.Class], milp.Term{Var: v, Coef: rate})
	}

	// Late requests may be the longest of those that come alone.
	if c.item == x.item {
		c.least += single(b.Problem, x.item)*x.mass*(x.tokens+1) - rate*x.longest
	}
	if b.goal == Factor {
		b.m.AddLE("", 0, append(served, milp.Term{Var: b.factor, Coef: -1})...)
	} else {
		b.m.AddLE("", 1, served...)
	}
}

// addTotals adds the rows that sum up: iterations, the requests in time that classes require, and the time
// of the instances.
func (b *bounding) end() {
	for m := range b.counted {
		c := &b.counted[m]
		sum := c.late
		for k, list := range c.full {
			if b.Models[m].On[k] != nil {
				b.m.AddGE("", 0, append(list, milp.Term{Var: c.turns[k], Coef: 1})...)
				sum = append(sum, milp.Term{Var: c.turns[k], Coef: 1})
			}
		}
		if c.item >= 0 {
			b.m.AddGE("", c.least, sum...)
		}
	}

	// Each class must have its share in time. The number of instances is whole.
	mass := make([]float64, len(b.Classes))
	for i := range b.Items {
		mass[b.Items[i].Class] += b.Items[i].RPS
	}
	for c := range b.Classes {
		switch b.goal {
		case Price:
			b.m.AddGE("", b.Classes[c].Share*mass[c], b.intime[c]...)
		case Factor:
			b.m.AddGE("", 0, append(b.intime[c], milp.Term{Var: b.factor, Coef: -b.Classes[c].Share * mass[c]})...)
		}
	}
	for k := range b.Kinds {
		price := 0.0
		if b.goal == Price {
			price = b.Kinds[k].Price
		}
		n := b.m.AddInt("", 0, float64(b.Kinds[k].Most), price)
		b.m.AddLE("", 0, append(b.capacity[k], milp.Term{Var: n, Coef: -1})...)
	}
}

// IterationOverhead returns the least time of an iteration beside what MinRequestWork counts per token, in
// seconds. MinRequestWork counts one iteration per `sequences` decoded tokens.
func EachIteration(it *formats.Iteration) float64 {
	return max(0, it.BaseNS+it.CPUNS-hidden(it)*it.HingeTokens) / 1e9
}

// promptTokenCost returns the cost of a prompt token in nanoseconds, lowered to where further iterations to
// hide it do not pay.
func hidden(it *formats.Iteration) float64 {
	if it.HingeTokens > 0 {
		return min(it.PromptNS, (it.BaseNS+it.CPUNS)/it.HingeTokens)
	}
	return it.PromptNS
}

// fullBatchIterations returns the iterations that MinRequestWork counts for a request: its share in full
// batches.
func decoded(sequences int, r llm.Request) float64 {
	return float64(max(r.Output-1, 0)) / float64(max(sequences, 1))
}

// decodedContext returns the sum of the context lengths over which a request's tokens are decoded.
func read(r llm.Request) float64 {
	d := float64(max(r.Output-1, 0))
	return d*float64(r.Prompt) + d*(d-1)/2
}

// WorkWithIterations returns the least work of a request to which a number of iterations belongs, in
// seconds. With countPrompts, prompts cost as in MinRequestWork, where iterations hide as much of them as
// they can. Otherwise prompts cost nothing, and iterations cost all of their base. Both are below every
// run.
func Part(it *formats.Iteration, r llm.Request, iterations float64, prompts bool) float64 {
	d, n := float64(max(r.Output-1, 0)), float64(r.Prompt)
	ns, each := (it.SequenceNS+it.CPUSequenceNS)*d+it.ContextNS*read(r)+it.AttentionNS*n*n/2, max(0, it.BaseNS+it.CPUNS)/1e9
	if prompts {
		ns, each = ns+hidden(it)*n, EachIteration(it)
	}
	return each*iterations + max(ns, 0)/1e9
}
