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

// requestPart is a part of an item's requests with similar work.
type requestPart struct {
	item  int
	share float64   // share of the item's requests
	work  []float64 // seconds of an instance, by kind. If it cannot run there, it is infinite.
	// tokens is how many a request decodes on average, maxOutput the longest answer.
	tokens, maxOutput float64
}

// requestParts divides the requests of every item (a class of requests for a model) into parts by their work, the least first, with the
// mean work of each part: by sampleSpans ten of those that must be in time, and one of those that may be late. A bound may assume that the
// late ones are those of most work, since dropping any others would leave more to do. Work is the seconds of an instance, by kind of
// servers. The order is that of the work on the first kind that can run the model.
func (b *workProgram) requestParts() []requestPart {
	p := b.problem
	var parts []requestPart
	for i := range p.Items {
		c, m := &p.Classes[p.Items[i].Class], &p.Models[p.Items[i].Model]

		// Compute the work of each sampled request on each kind, and sort the requests by it.
		workByKind := make([][]float64, len(c.Sample))
		sortedRequests := make([]int, len(c.Sample))
		for n, r := range c.Sample {
			sortedRequests[n], workByKind[n] = n, make([]float64, len(p.Kinds))
			for k := range p.Kinds {
				workByKind[n][k] = math.Inf(1)
				if m.ByKind[k] != nil {
					workByKind[n][k] = b.requestWork(p.Items[i].Model, k, r, c.Sessions != nil)
				}
			}
		}
		firstKind := slices.IndexFunc(workByKind[0], func(w float64) bool { return !math.IsInf(w, 1) })
		slices.SortStableFunc(sortedRequests, func(r, o int) int { return cmp.Compare(workByKind[r][firstKind], workByKind[o][firstKind]) })

		// Average the work within each part.
		for _, span := range sampleSpans(len(workByKind), c.RequiredShare) {
			n := float64(span[1] - span[0])
			part := requestPart{item: i, share: n / float64(len(workByKind)), work: make([]float64, len(p.Kinds))}
			for _, r := range sortedRequests[span[0]:span[1]] {
				for k := range p.Kinds {
					part.work[k] += workByKind[r][k] / n
				}
				part.tokens += float64(max(c.Sample[r].Output-1, 0)) / n
				part.maxOutput = max(part.maxOutput, float64(c.Sample[r].Output))
			}
			parts = append(parts, part)
		}
	}
	return parts
}

// sampleSpans divides n requests, sorted by rising work, into up to ten spans of those that must be in time (a requiredShare of all) and
// one of those that may be late. A span {from, to} has the requests from `from` up to `to`, that one excluded. A bound on work takes the
// mean of each span, so ten of them are enough detail.
func sampleSpans(n int, requiredShare float64) [][2]int {
	const parts = 10
	required, from := min(max(int(requiredShare*float64(n)), 1), n), 0
	var spans [][2]int
	for i := range parts {
		// With fewer than ten required requests some spans would be empty; they are left out.
		if to := (i + 1) * required / parts; to > from {
			spans = append(spans, [2]int{from, to})
			from = to
		}
	}
	if from < n {
		spans = append(spans, [2]int{from, n})
	}
	return spans
}

// Goal is the quantity that a bound limits.
type Goal uint8

// The goals: the price of the instances, the requests in time per second on all devices, and the factor on
// all rates.
const (
	GoalPrice Goal = iota
	GoalGoodput
	GoalFactor
)

// workProgram is the mixed-integer program of a work bound.
type workProgram struct {
	problem      *Problem
	goal         Goal
	program      *milp.Model
	factor       milp.Var
	capacity     [][]milp.Term     // time of instances that requests and iterations take, by kind
	onTime       [][]milp.Term     // requests in time, by class
	iterations   []modelIterations // by model
	hidesPrompts [][]bool          // by model and kind: the iterations hide the prompts
}

// modelIterations counts the iterations of a model as variables of their own. They are at least those of
// full batches, and at least those that some item's requests need which come one at a time and share none.
type modelIterations struct {
	item           int           // see sparseItem. If it is -1, the work of requests contains the iterations.
	iterationRates []milp.Var    // iterations per second, by kind
	fullBatches    [][]milp.Term // the negative of the iterations of full batches, by kind; addPart adds a term for each part of the requests
	lateSavings    []milp.Term   // the negative of the iterations that late requests do not need
	minIterations  float64       // iterations per second if all requests of the item were late. Below 0 it demands none.
}

// LeavesOutSizes reports whether a model was measured on a number of devices of a kind on which the problem has no servers.
func (p *Problem) LeavesOutSizes() bool {
	for m := range p.Models {
		for k := range p.Models[m].Profile.Instances {
			in := &p.Models[m].Profile.Instances[k]
			isUsable := slices.ContainsFunc(p.Pools, func(pool formats.Pool) bool { return pool.Device == in.Device && in.TensorParallel <= pool.Count })
			isIn := func(kind Kind) bool { return kind.Device == in.Device && kind.TP == in.TensorParallel }
			if isUsable && !slices.ContainsFunc(p.Kinds, isIn) {
				return true
			}
		}
	}
	return false
}

// WorkBound returns a bound of a goal that holds in the long run, for any order of requests and any assignment to servers: the work of
// the requests in time (seconds of an instance) must fit into the time of the instances. For the goal price it returns the least price in
// the unit of the objective, for the others the largest goodput in requests per second or the largest factor on all rates. If the work
// does not fit at all, it returns +Inf.
func (p *Problem) WorkBound(ctx context.Context, solver milp.Solver, goal Goal) (float64, error) {
	b := &workProgram{problem: p, goal: goal, program: milp.New("work of instances"), factor: -1, capacity: make([][]milp.Term, len(p.Kinds)), onTime: make([][]milp.Term, len(p.Classes))}
	if goal != GoalPrice {
		b.program.SetSense(milp.Maximize)
	}
	if goal == GoalFactor {
		b.factor = b.program.AddVar("factor", 0, milp.Inf, 1)
	}

	// Add iterations, then the requests by parts, then the totals.
	b.addIterations()
	for _, x := range b.requestParts() {
		b.addPart(&x)
	}
	b.addTotals()
	sol, err := solver.Solve(ctx, b.program, milp.Options{MaxNodes: 2000})
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

// addIterations decides, for each model, whether its iterations are variables of the program, and adds these: iterations per second, by
// kind of servers. They are variables if the requests of some item (a class of requests for the model) are so often alone on an instance
// that they need more iterations than full batches of all requests. Otherwise the work of a request contains its part of the iterations
// of full batches. It also sets where prompts cost nothing beside the iterations (hidesPrompts). Under goals other than the price no
// iterations are variables, because all requests may be late (goodput) or the rates are not known (factor).
func (b *workProgram) addIterations() {
	b.iterations, b.hidesPrompts = make([]modelIterations, len(b.problem.Models)), make([][]bool, len(b.problem.Models))
	for m := range b.problem.Models {
		// c.item is the item whose requests are so often alone. -1 stands for none.
		c := &b.iterations[m]
		c.item = -1
		if b.goal == GoalPrice {
			c.item = sparseItem(b.problem, m)
		}
		b.hidesPrompts[m] = b.kindsHidingPrompts(m, c.item)
		if c.item < 0 {
			continue
		}
		c.iterationRates, c.fullBatches = make([]milp.Var, len(b.problem.Kinds)), make([][]milp.Term, len(b.problem.Kinds))
		for k := range b.problem.Kinds {
			if instance := b.problem.Models[m].ByKind[k]; instance != nil {
				c.iterationRates[k] = b.program.AddVar("", 0, milp.Inf, 0)
				b.capacity[k] = append(b.capacity[k], milp.Term{Var: c.iterationRates[k], Coef: b.iterationCost(m, k)})
			}
		}
	}
}

// kindsHidingPrompts returns, by kind of servers, whether a model runs so many iterations that they hide its prompts: the first
// HingeTokens prompt tokens of an iteration cost nothing beside decoding. The bound can count in two ways (MinRequestWork): each iteration
// with all of its base and prompts as nothing, or prompts at their price and each iteration without the price of the tokens that it hides.
// Both stay below every run. The first is higher if there are fewer prompt tokens than the iterations hide, which is what the function
// estimates. sparse is the item whose requests come alone (see sparseItem), or -1.
func (b *workProgram) kindsHidingPrompts(model, sparse int) []bool {
	hides := make([]bool, len(b.problem.Kinds))
	for k, instance := range b.problem.Models[model].ByKind {
		if instance == nil {
			continue
		}

		// Compare the prompt tokens per second with what the iterations per second hide. There are at least the iterations of full
		// batches, in which a request takes a share of the tokens of its answer but the first, and those of requests that come alone.
		// Prompts of sessions may be cached, and count nothing.
		iterationRate, promptRate := 0.0, 0.0
		for _, i := range b.problem.itemsOf(model) {
			c := &b.problem.Classes[b.problem.Items[i].Class]
			prompt, output, _ := lengthMoments(c.Sample)
			iterationRate += b.problem.Items[i].RPS * max(output-1, 0) / float64(max(b.problem.maxSequences(model, k), 1))
			if c.Sessions == nil {
				promptRate += b.problem.Items[i].RPS * prompt
			}
		}
		if sparse >= 0 {
			_, output, _ := lengthMoments(b.problem.Classes[b.problem.Items[sparse].Class].Sample)
			iterationRate = max(iterationRate, isolatedRate(b.problem, sparse)*output)
		}
		hides[k] = promptRate < instance.Iteration.HingeTokens*iterationRate
	}
	return hides
}

// iterationCost returns the time of an iteration of a model that does not depend on its requests, in seconds,
// as the bound counts it.
func (b *workProgram) iterationCost(model, kind int) float64 {
	return iterationOverhead(&b.problem.Models[model].ByKind[kind].Iteration, b.hidesPrompts[model][kind])
}

// requestWork returns the least time of an instance that a request of a model takes on a kind of servers, in
// seconds.
func (b *workProgram) requestWork(model, kind int, r llm.Request, promptCached bool) float64 {
	return MinRequestWork(&b.problem.Models[model].ByKind[kind].Iteration, r, fullBatchIterations(b.problem.maxSequences(model, kind), r), b.hidesPrompts[model][kind], promptCached)
}

// sparseItem returns the item of a model (one class of its requests) whose requests alone force the most iterations, or -1 if these are
// no more than full batches of all the model's requests need.
//
// If a request arrives after the one before is due, and both are in time, they share no iteration. So each of them needs one iteration
// for every token of its answer. isolatedRate has how often such requests come. That rate is known for Poisson arrivals only, and the
// argument takes an SLO on the whole answer and requests without sessions, which come independently.
func sparseItem(p *Problem, model int) int {
	if p.Arrivals != nil && p.Arrivals.Process != "poisson" || p.Replay != nil {
		return -1
	}

	// Iterations per second: of single requests of the item that needs the most, and of full batches of all items.
	sparsest, maxIterations, batchIterations := -1, 0.0, 0.0
	fullBatch := slices.Max(append([]int{1}, p.Caps...)) // at most so many sequences run at once, and an iteration makes a token of each
	for _, i := range p.itemsOf(model) {
		c := &p.Classes[p.Items[i].Class]
		_, meanOutput, _ := lengthMoments(c.Sample)
		batchIterations += p.Items[i].RPS * meanOutput / float64(fullBatch)
		if iterations := isolatedRate(p, i) * meanOutput; c.Figure == formats.FigureE2E && c.Sessions == nil && iterations > maxIterations {
			sparsest, maxIterations = i, iterations
		}
	}
	if maxIterations <= batchIterations {
		return -1
	}
	return sparsest
}

// isolatedRate returns the rate, in requests per second, of those requests of an item that come only after the
// previous such one is due. If they are in time, no iteration serves two of them. From one to the next it takes the SLO
// and then, under Poisson arrivals, the mean time between arrivals.
func isolatedRate(p *Problem, item int) float64 {
	if p.Items[item].RPS == 0 {
		return 0
	}
	return 1 / (1/p.Items[item].RPS + p.Classes[p.Items[item].Class].SLO.Seconds())
}

// addPart adds a part of an item's requests (those of similar work) to the program: for each kind of servers that can run them, a
// variable v for the share of the part that is served in time there, from 0 to 1 in sum. It takes time of the kind's instances (capacity),
// and counts as in time for its class (onTime). With the goal factor, the shares of a part sum to at most the factor on the rates.
//
// If the model's iterations are variables (addIterations), it also adds the terms by which the part demands iterations: v takes its place
// in full batches, and the requests of the item that come alone need some of their own. addTotals makes rows of these terms.
func (b *workProgram) addPart(x *requestPart) {
	item := &b.problem.Items[x.item]
	rate, model := item.RPS*x.share, item.Model // requests of the part per second
	c := &b.iterations[model]
	iterationsAreVariables, comesAlone := c.item >= 0, c.item == x.item
	var servedTerms []milp.Term
	for k := range b.problem.Kinds {
		if math.IsInf(x.work[k], 1) {
			continue
		}
		obj, work := 0.0, x.work[k]
		if b.goal == GoalGoodput {
			obj = rate
		}
		v := b.program.AddVar("", 0, milp.Inf, obj)

		// x.work contains the request's part of iterations of full batches. If the iterations are variables, their cost is counted there.
		if iterationsAreVariables {
			iterations := x.tokens / float64(b.problem.maxSequences(model, k)) // a request's part of full batches
			work = max(0, work-iterations*b.iterationCost(model, k))
			c.fullBatches[k] = append(c.fullBatches[k], milp.Term{Var: v, Coef: -rate * iterations})
		}
		if comesAlone {
			c.lateSavings = append(c.lateSavings, milp.Term{Var: v, Coef: -rate * x.maxOutput})
		}
		servedTerms = append(servedTerms, milp.Term{Var: v, Coef: 1})
		b.capacity[k] = append(b.capacity[k], milp.Term{Var: v, Coef: rate * work})
		b.onTime[item.Class] = append(b.onTime[item.Class], milp.Term{Var: v, Coef: rate})
	}

	// Requests that come alone need an iteration for each token of their answers (tokens + 1 on average), unless they are late. The
	// late ones may be the longest of all, so the iterations per second are at least
	//
	//	isolatedRate · share · (tokens + 1) - rate · maxOutput · (1 - Σ v)
	//
	// The terms without v stand here, those with v in lateSavings.
	if comesAlone {
		c.minIterations += isolatedRate(b.problem, x.item)*x.share*(x.tokens+1) - rate*x.maxOutput
	}

	// The shares of all kinds sum to at most 1, or to the factor on the rates.
	if b.goal == GoalFactor {
		b.program.AddLE("", 0, append(servedTerms, milp.Term{Var: b.factor, Coef: -1})...)
	} else {
		b.program.AddLE("", 1, servedTerms...)
	}
}

// addTotals adds the rows that sum over the parts that addPart added: the iterations of each model, the requests in time that each class
// requires, and for each kind of servers that the work fits into the time of its instances, of which there is a whole number.
func (b *workProgram) addTotals() {
	// Iterations are variables for models some of whose requests come alone (addIterations). On each kind they are at least those of
	// full batches, whose terms are negative: iterations - Σ full batches ≥ 0. In sum over the kinds they are at least those of the
	// requests that come alone, less those that late ones save: Σ iterations + lateSavings ≥ minIterations (addPart).
	for m := range b.iterations {
		counts := &b.iterations[m]
		sum := counts.lateSavings
		for k, fullBatches := range counts.fullBatches {
			if b.problem.Models[m].ByKind[k] != nil {
				b.program.AddGE("", 0, append(fullBatches, milp.Term{Var: counts.iterationRates[k], Coef: 1})...)
				sum = append(sum, milp.Term{Var: counts.iterationRates[k], Coef: 1})
			}
		}
		if counts.item >= 0 { // the iterations are variables
			b.program.AddGE("", counts.minIterations, sum...)
		}
	}

	// Each class must have its share in time. The number of instances is whole.
	classRPS := make([]float64, len(b.problem.Classes))
	for i := range b.problem.Items {
		classRPS[b.problem.Items[i].Class] += b.problem.Items[i].RPS
	}
	for c := range b.problem.Classes {
		switch b.goal {
		case GoalPrice:
			b.program.AddGE("", b.problem.Classes[c].RequiredShare*classRPS[c], b.onTime[c]...)
		case GoalFactor:
			b.program.AddGE("", 0, append(b.onTime[c], milp.Term{Var: b.factor, Coef: -b.problem.Classes[c].RequiredShare * classRPS[c]})...)
		}
	}
	devicesByPool := map[int][]milp.Term{}
	for k := range b.problem.Kinds {
		price := 0.0
		if b.goal == GoalPrice {
			price = b.problem.Kinds[k].Price
		}
		n := b.program.AddInt("", 0, float64(b.problem.Kinds[k].MaxInstances), price)
		b.program.AddLE("", 0, append(b.capacity[k], milp.Term{Var: n, Coef: -1})...)
		devicesByPool[b.problem.Kinds[k].Pool] = append(devicesByPool[b.problem.Kinds[k].Pool], milp.Term{Var: n, Coef: float64(b.problem.Kinds[k].TP)})
	}

	// Kinds of servers with different numbers of devices share those of their pool.
	for i := range b.problem.Pools {
		if terms := devicesByPool[i]; len(terms) > 1 {
			b.program.AddLE("", float64(b.problem.Pools[i].Count), terms...)
		}
	}
}

// MinRequestWork returns the least time of an instance that a request takes, in seconds, in whatever batches and order.
// iterations is its share of the instance's iterations. In all, an instance takes
//
//	base·I + sequence·D + context·C + attention·A + prompt·max(0, N - hinge·I)
//
// with the costs of formats.Iteration (base and sequence with those of the CPU), for I iterations that decode D tokens
// over C tokens of context, N tokens of prompts, and A pairs of a prompt token and one before it. I is at least D over
// the largest batch (fullBatchIterations). There are two ways to count prompts, both of which are below every run. With
// iterationsHidePrompts, prompts cost nothing, and iterations cost all of their base. Otherwise the maximum is left out,
// so that the work is a sum over requests, and hidden tokens are taken off the base (iterationOverhead). A prompt token
// then costs no more than its part of an iteration that hides it (promptTokenCost), so more iterations than the least
// never make the sum smaller. Everything else left out (iterations that are not full, swaps, evictions, loads) only
// takes longer. The prompt of a session may be cached: then it and its attention count nothing.
func MinRequestWork(iteration *formats.Iteration, r llm.Request, iterations float64, iterationsHidePrompts, promptCached bool) float64 {
	d, n := float64(max(r.Output-1, 0)), float64(r.Prompt)
	decodedContext := d*n + d*(d-1)/2 // sum of the context lengths over which the tokens are decoded
	ns := (iteration.SequenceNS+iteration.CPUSequenceNS)*d + iteration.ContextNS*decodedContext
	if !promptCached {
		ns += iteration.AttentionNS * n * n / 2
		if !iterationsHidePrompts {
			ns += promptTokenCost(iteration) * n
		}
	}
	return iterationOverhead(iteration, iterationsHidePrompts)*iterations + max(ns, 0)/1e9
}

// iterationOverhead returns the least time of an iteration beside what MinRequestWork counts per token, in seconds:
// all of its base or, unless iterations hide prompts, the base less what the prompt tokens that it hides count.
func iterationOverhead(iteration *formats.Iteration, iterationsHidePrompts bool) float64 {
	base := iteration.BaseNS + iteration.CPUNS
	if !iterationsHidePrompts {
		base -= promptTokenCost(iteration) * iteration.HingeTokens
	}
	return max(0, base) / 1e9
}

// promptTokenCost returns the cost of a prompt token in nanoseconds. An iteration reads HingeTokens of them for
// nothing, so a token costs no more than its part of a further iteration.
func promptTokenCost(iteration *formats.Iteration) float64 {
	if iteration.HingeTokens > 0 {
		return min(iteration.PromptNS, (iteration.BaseNS+iteration.CPUNS)/iteration.HingeTokens)
	}
	return iteration.PromptNS
}

// fullBatchIterations returns the iterations of a request if all batches are full: its share of them.
func fullBatchIterations(sequences int, r llm.Request) float64 {
	return float64(max(r.Output-1, 0)) / float64(max(sequences, 1))
}
