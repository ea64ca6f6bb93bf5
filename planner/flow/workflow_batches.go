package flow

import (
	"context"
	"fmt"
	"math"

	"inferplan/planner/kind"
	"inferplan/policy/flow"
	"inferplan/solver/milp"
)

// chosenBatches has the batch of every service on every kind of devices, the share of its work that runs
// there, and the device time of all work at rate factor 1, with what is proven of it.
type chosenBatches struct {
	counts       []int       // devices, by kind
	batch        [][]int     // index of the useful batch, by service and kind, or notDeployed
	share        [][]float64 // part of a service's work, by service and kind
	price        float64     // price of the devices, if the rates are given
	least        float64     // no devices that carry the rates cost less
	value, bound float64     // device time at rate factor 1, in devices of the whole cluster, and its lower bound
	stopped      milp.StoppedBy
	nodes        int64
	iterations   int64
}

// batchProgram is the mixed-integer program that chooses which kinds run each service, in which batch, and
// what share of its work.
type batchProgram struct {
	*milp.Model
	sizes [][][]milp.Var // z, by service, kind and useful batch. A kind that is left out has none.
	parts [][][]milp.Var // y, likewise. With only one kind there are none.
}

// batchChooser chooses devices, the services that run on them, and their batches.
type batching struct{ *workflowProblem }

// choose chooses devices, batches and work shares.
func (w *batching) choose(ctx context.Context) (*chosenBatches, error) {
	counts, all := make([]int, len(w.pools)), 0
	for k := range w.pools {
		counts[k] = w.pools[k].Count
		all += counts[k]
	}

	// For throughput all devices are used.
	b, err := w.batches(ctx, counts)
	if err != nil || w.objective == "throughput" {
		return b, err
	}
	if b.value > float64(all)*(1+1e-9) {
		return nil, &kind.InfeasibleError{Constraint: "devices", Reason: fmt.Sprintf("the rates of the applications take %.4g devices, and there are %d", b.value, all),
			Nearest: kind.Nearest{LoadFactor: math.Floor(float64(all)/b.value*1e6) / 1e6}}
	}

	// With one kind, the number of devices follows from their time. With several, a program finds the
	// cheapest.
	if len(counts) == 1 {
		n := max(1, math.Ceil(b.value*(1-1e-9)))
		b.counts, b.price, b.least = []int{int(n)}, n*w.prices[0], math.Ceil(b.bound*(1-1e-9))*w.prices[0]
		return b, nil
	}
	return w.cheapest(ctx, b)
}

// cheapest chooses the cheapest devices that carry the rates, then the batches that use them best.
func (w *batching) cheapest(ctx context.Context, all *chosenBatches) (*chosenBatches, error) {
	m := w.program(all.counts)
	var devices []milp.Var
	for k, n := range all.counts {
		// Devices of a kind that runs anything must be there, and have the time that their services take.
		v := m.AddInt("devices of "+w.pools[k].Device, 0, float64(n), w.prices[k])
		w.busy(m, k, v, 1)
		for s := range m.sizes {
			for _, z := range m.sizes[s][k] {
				m.AddLE("", 0, milp.Term{Var: z, Coef: 1}, milp.Term{Var: v, Coef: -1})
			}
		}
		devices = append(devices, v)
	}
	found, sol, err := w.solve(ctx, m)
	if err != nil {
		return nil, err
	}
	for k, v := range devices {
		found.counts[k] = sol.Int(v)
		found.price += w.prices[k] * float64(found.counts[k])
	}
	found.least = min(sol.Bound, found.price)

	// Choose batches for these devices.
	b, err := w.batches(ctx, found.counts)
	if err != nil {
		return nil, fmt.Errorf("choosing the batches of %v devices: %w", found.counts, err)
	}
	b.price, b.least, b.stopped = found.price, found.least, found.stopped
	b.nodes, b.iterations = b.nodes+found.nodes, b.iterations+found.iterations
	return b, nil
}

// chooseBatches chooses batches and work shares so that every path keeps its deadline, with a batch to wait
// for and one's own at every step, and the work of rate factor 1 takes as little of the devices' time as
// possible.
//
// deviceTime is the time of the busiest kind at factor 1, as a share of that kind, times the number of all
// devices. All devices divided by it are the capacity bound, which leaves out memory and loads: no
// placement carries more.
func (w *batching) batches(ctx context.Context, counts []int) (*chosenBatches, error) {
	m, all := w.program(counts), 0
	for _, n := range counts {
		all += n
	}

	// With several kinds, minimize the time of the busiest one.
	if len(counts) > 1 {
		time := m.AddVar("devices", 0, milp.Inf, 1)
		for k, n := range counts {
			w.busy(m, k, time, float64(n)/float64(all))
		}
	}
	b, sol, err := w.solve(ctx, m)
	if err != nil {
		return nil, err
	}
	copy(b.counts, counts)
	for k, n := range counts {
		if n > 0 {
			b.value = max(b.value, w.timeOn(b, k)*float64(all)/float64(n))
		}
	}
	if b.bound = min(sol.Bound, b.value); len(counts) > 1 {
		b.bound = min(sol.Bound*(1-1e-7), b.value) // rows hold only up to the solver's tolerance
	}
	w.widen(b)
	return b, nil
}

// newProgram returns the rows and variables that all programs of batches share. With one kind of devices
// the objective is the time of these devices.
func (w *batching) program(counts []int) *batchProgram {
	m := &batchProgram{Model: milp.New("batches of workflows")}
	for s := range w.services {
		w.runs(m, s, counts)
	}
	for a := range w.apps {
		w.deadlines(m.Model, &w.apps[a], m.sizes)
	}
	return m
}

// addService adds the batch of service s. With one kind of devices it has exactly one. With several it has
// at most one on each kind, at least one in all, and its work is divided between the kinds:
//
//	Σ_b z_skb ≤ 1;   Σ_kb z_skb ≥ 1;   Σ_kb y_skb = 1;   0 ≤ y_skb ≤ z_skb
func (w *batching) runs(m *batchProgram, s int, counts []int) {
	sv, alone := &w.services[s], len(counts) == 1
	sizes, parts := make([][]milp.Var, len(counts)), make([][]milp.Var, len(counts))
	some, work := m.AddEQ("batch of "+sv.name, 1), milp.Row(0)
	if !alone {
		m.SetRowBounds(some, 1, milp.Inf)
		work = m.AddEQ("work of "+sv.name, 1)
	}
	for k, n := range counts {
		if n == 0 {
			continue
		}
		one := some
		if !alone {
			one = m.AddLE("", 1)
		}

		// A variable for every useful batch. It is binary, unless batches may be mixed.
		for i := range sv.on[k].sizes {
			z, cost := &sv.on[k].sizes[i], 0.0
			if alone {
				cost = w.load(s) * z.each()
			}
			add := m.AddBool
			if w.fluid {
				add = func(name string, obj float64) milp.Var { return m.AddVar(name, 0, 1, obj) }
			}
			v := add(fmt.Sprintf("%s %d", sv.name, z.batch), cost)
			m.AddTerm(one, v, 1)
			if sizes[k] = append(sizes[k], v); alone {
				continue
			}
			part := m.AddVar("", 0, 1, 0)
			m.AddTerm(some, v, 1)
			m.AddTerm(work, part, 1)
			m.AddLE("", 0, milp.Term{Var: part, Coef: 1}, milp.Term{Var: v, Coef: -1})
			parts[k] = append(parts[k], part)
		}
	}
	m.sizes, m.parts = append(m.sizes, sizes), append(m.parts, parts)
}

// serviceLoad returns the load of service s at rate factor 1, in tasks of the usual work per second.
func (w *workflowProblem) load(s int) float64 {
	sum := 0.0
	for a := range w.apps {
		sum += w.apps[a].weight * w.apps[a].work[s]
	}
	return sum
}

// limitKindTime limits the device time of kind k to factor times the variable v.
func (w *batching) busy(m *batchProgram, k int, v milp.Var, times float64) {
	row := m.AddLE("time of "+w.pools[k].Device, 0, milp.Term{Var: v, Coef: -times})
	for s := range m.parts {
		for i, part := range m.parts[s][k] {
			m.AddTerm(row, part, w.load(s)*w.services[s].on[k].sizes[i].each())
		}
	}
}

// kindTime returns the device time of kind k at rate factor 1, in devices.
func (w *batching) timeOn(b *chosenBatches, k int) float64 {
	sum := 0.0
	for s := range w.services {
		sum += w.timeOf(b, s, k)
	}
	return sum
}

// serviceTime returns the part of that time that service s takes.
func (w *workflowProblem) timeOf(b *chosenBatches, s, k int) float64 {
	if b.batch[s][k] == nowhere {
		return 0
	}
	return b.share[s][k] * w.load(s) * w.services[s].on[k].sizes[b.batch[s][k]].each()
}

// solve solves a program of batches. A solution that misses a deadline by less than the solver's tolerance
// is excluded, and the program solved again.
func (w *batching) solve(ctx context.Context, m *batchProgram) (*chosenBatches, *milp.Solution, error) {
	for {
		sol, err := w.run.Solver.Solve(ctx, m.Model, milp.Options{Gap: w.gap, Seed: w.seed})
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("solving the program of batches: %w", err)
		case sol.Status == milp.Infeasible:
			return nil, nil, errNone
		case !sol.Feasible() && ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case !sol.Feasible():
			return nil, nil, fmt.Errorf("the solver stopped without batches: %v", sol.Status)
		}

		// Read the batches and work shares.
		b := &chosenBatches{counts: make([]int, len(w.pools)), stopped: sol.StoppedBy, nodes: sol.Stats.Nodes, iterations: sol.Stats.Iterations}
		var taken []milp.Var
		for s := range m.sizes {
			batch, share := make([]int, len(w.pools)), make([]float64, len(w.pools))
			for k := range m.sizes[s] {
				batch[k] = nowhere
				for i, v := range m.sizes[s][k] {
					if sol.Int(v) == 1 {
						batch[k], taken = i, append(taken, v)
						if share[k] = 1; len(w.pools) > 1 {
							share[k] = sol.At(m.parts[s][k][i])
						}
						if share[k] < rounding {
							share[k] = 0
						}
					}
				}
			}
			whole := sum(share)
			for k := range share {
				share[k] /= whole
			}
			b.batch, b.share = append(b.batch, batch), append(b.share, share)
		}

		// Check the deadlines exactly.
		if w.keeps(b.batch) {
			return b, sol, nil
		}
		// A path is too slow by less than the solver's tolerance: exclude these batches.
		bar := m.AddLE("barred", float64(len(taken)-1))
		for _, v := range taken {
			m.AddTerm(bar, v, 1)
		}
	}
}

// deployOnIdleKinds lets kinds of devices run a service of which the plan gives them no work, in the
// largest batch that takes no longer than those on the other kinds, so that no path gets longer.
func (w *batching) widen(b *chosenBatches) {
	for s := range b.batch {
		sv := &w.services[s]
		most := sv.slowest(b.batch, s)
		for k := range b.batch[s] {
			if b.counts[k] == 0 || b.share[s][k] > 0 {
				continue
			}
			for i := range sv.on[k].sizes {
				if sv.on[k].sizes[i].worst <= most {
					b.batch[s][k] = i
				}
			}
		}
	}
}

// addDeadlines limits the time of every visited path of an application to its budget, in seconds:
//
//	2 · Σ over visited segments of the longest path of worstTime ≤ SLO - margin
func (w *batching) deadlines(m *milp.Model, a *workflow, sizes [][][]milp.Var) {
	// The time of a segment is that of its longest path.
	segments := make([]milp.Var, len(a.paths))
	for g := range a.paths {
		segments[g] = m.AddVar("segment "+a.asked.Name, 0, milp.Inf, 0)
		for _, path := range a.paths[g] {
			row := m.AddGE("path of "+a.asked.Name, 0, milp.Term{Var: segments[g], Coef: 1})
			for i := range path {
				m.AddTerm(row, w.leg(m, a, &path[i], sizes), -1)
			}
		}
	}

	// The budget is halved for the wait in every step. A bound without queueing has no wait and no margin.
	budget := (a.slo - a.margin).Seconds() / waiting
	if w.fluid {
		budget = a.slo.Seconds()
	}
	for _, v := range a.visits {
		row := m.AddLE("deadline of "+a.asked.Name, budget)
		for g, n := range v.Times {
			if n > 0 {
				m.AddTerm(row, segments[g], float64(n))
			}
		}
	}
}

// addStepTime adds a variable for the time of a step: the longest of the services that may run it, on any
// of the kinds that run them.
func (w *batching) leg(m *milp.Model, a *workflow, leg *flow.Leg, sizes [][][]milp.Var) milp.Var {
	v := m.AddVar("step", 0, milp.Inf, 0)
	for _, id := range leg.Services {
		s := a.of[id]
		for k := range sizes[s] {
			row := m.AddGE("step", 0, milp.Term{Var: v, Coef: 1})
			for i, z := range sizes[s][k] {
				m.AddTerm(row, z, -leg.Work*w.services[s].on[k].sizes[i].worst.Seconds())
			}
		}
	}
	return v
}

// keepsDeadlines returns whether the chosen batches keep all deadlines, computed exactly.
func (w *workflowProblem) keeps(chosen [][]int) bool {
	for i := range w.apps {
		if a := &w.apps[i]; waiting*w.took(a, chosen) > a.slo-a.margin {
			return false
		}
	}
	return true
}

// sloError returns an error that names the application whose SLO has to grow by the largest factor.
func (w *workflowProblem) tooSoon() error {
	worst, by := 0, 0.0
	for i := range w.apps {
		a := &w.apps[i]
		if f := w.took(a, nil).Seconds() / max((a.slo-a.margin).Seconds(), 1e-9); f > by {
			worst, by = i, f
		}
	}
	a := &w.apps[worst]
	need := waiting * w.took(a, nil)
	return &kind.InfeasibleError{Model: a.asked.Name, Constraint: "slo",
		Reason: fmt.Sprintf("the longest way of %s at %s takes %v in batches of one, with one to wait for and one's own at every step, and %v less the margin of %v leaves %v",
			a.asked.Name, a.asked.Percentile, need, a.slo, a.margin, a.slo-a.margin),
		Nearest: kind.Nearest{SLOUS: float64(kind.LeastSLO(need, a.margin.Seconds()/a.slo.Seconds())) / 1000}}
}

// rateFactor returns the rate factor that the devices carry, and its upper bound.
func (b *chosenBatches) factor() (value, bound float64) {
	if b.value <= 0 {
		return 0, 0
	}
	devices := 0.0
	for _, n := range b.counts {
		devices += float64(n)
	}
	value = devices / b.value
	if b.bound >= b.value*(1-1e-12) {
		return value, value
	}
	return value, devices / math.Max(b.bound, 1e-300)
}
