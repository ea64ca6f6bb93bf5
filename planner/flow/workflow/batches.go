package workflow

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/policy/flow"
	"inferplan/solver/milp"
)

// chosenBatches has the batch of every service on every kind of devices, the share of its work that runs
// there, and the device time of all work at rate factor 1, with what is proven of it.
type chosenBatches struct {
	counts                      []int       // devices, by kind
	batch                       [][]int     // index of the useful batch, by service and kind, or notDeployed
	workShare                   [][]float64 // part of a service's work, by service and kind
	price                       float64     // price of the devices, if the rates are given
	priceBound                  float64     // no devices that carry the rates cost less
	deviceTime, deviceTimeBound float64     // device time at rate factor 1, in devices of the whole cluster, and its lower bound
	stoppedBy                   milp.StoppedBy
	nodes                       int64
	iterations                  int64
}

// batchProgram is the mixed-integer program that chooses which kinds run each service, in which batch, and
// what share of its work.
type batchProgram struct {
	problem    *workflowProblem
	program    *milp.Model
	batches    [][][]milp.Var // z, by service, kind and useful batch. A kind that is left out has none.
	workShares [][][]milp.Var // y, likewise. With only one kind there are none.
}

// chooseDevices chooses, for workflows, how many devices of each kind are used, the batch size of each service (a model that applications
// ask for) on them, and the shares of its work that the kinds get. For throughput all devices are used; for a price the cheapest ones
// that carry the rates. If the rates take more than all devices, it returns an error with the load that they carry.
func (w *workflowProblem) chooseDevices(ctx context.Context) (*chosenBatches, error) {
	counts := w.deviceCounts()
	totalDevices := lists.Total(counts)

	// For throughput all devices are used.
	b, err := w.chooseBatches(ctx, counts)
	if err != nil || w.objective == "throughput" {
		return b, err
	}

	// For a price the rates are given: deviceTime is how many devices they take.
	if b.deviceTime > float64(totalDevices)*(1+1e-9) {
		return nil, &kind.InfeasibleError{Constraint: "devices", Reason: fmt.Sprintf("the rates of the applications take %.4g devices, and there are %d", b.deviceTime, totalDevices),
			Nearest: kind.NearestFeasible{LoadFactor: math.Floor(float64(totalDevices)/b.deviceTime*1e6) / 1e6}}
	}

	// With one kind, the number of devices follows from their time. With several, a program finds the
	// cheapest.
	if len(counts) == 1 {
		n := max(1, math.Ceil(b.deviceTime*(1-1e-9)))
		b.counts, b.price, b.priceBound = []int{int(n)}, n*w.prices[0], math.Ceil(b.deviceTimeBound*(1-1e-9))*w.prices[0]
		return b, nil
	}
	return w.cheapestDevices(ctx, b)
}

// deviceCounts returns the number of devices of each kind.
func (w *workflowProblem) deviceCounts() []int {
	return lists.Filled(len(w.pools), func(k int) int { return w.pools[k].Count })
}

// cheapestDevices chooses the cheapest numbers of devices of several kinds that carry the rates, and batches for them. A first program
// finds the devices: its objective is their price alone, so its batches are any that these devices carry. A second one chooses the batches
// that take the least time of these devices. clusterChoice is a choice for all devices of the cluster, whose counts limit the program.
func (w *workflowProblem) cheapestDevices(ctx context.Context, clusterChoice *chosenBatches) (*chosenBatches, error) {
	m := w.newBatchProgram(clusterChoice.counts)
	var devices []milp.Var
	for k, n := range clusterChoice.counts {
		// The services take at most the time of the kind's devices (v, times a factor of 1). A kind that has a batch of some service,
		// even one without work, needs a device: z ≤ v.
		v := m.program.AddInt("devices of "+w.pools[k].Device, 0, float64(n), w.prices[k])
		m.limitKindTime(k, v, 1)
		for s := range m.batches {
			for _, z := range m.batches[s][k] {
				m.program.AddLE("", 0, milp.Term{Var: z, Coef: 1}, milp.Term{Var: v, Coef: -1})
			}
		}
		devices = append(devices, v)
	}
	priced, sol, err := m.solve(ctx)
	if err != nil {
		return nil, err
	}
	for k, v := range devices {
		priced.counts[k] = sol.Int(v)
		priced.price += w.prices[k] * float64(priced.counts[k])
	}
	priced.priceBound = min(sol.Bound, priced.price) // by rounding, the solver's bound may be above the price

	// Choose batches for these devices.
	b, err := w.chooseBatches(ctx, priced.counts)
	if err != nil {
		return nil, fmt.Errorf("choosing the batches of %v devices: %w", priced.counts, err)
	}
	b.price, b.priceBound, b.stoppedBy = priced.price, priced.priceBound, priced.stoppedBy
	b.nodes, b.iterations = b.nodes+priced.nodes, b.iterations+priced.iterations
	return b, nil
}

// chooseBatches chooses, for given numbers of devices by kind, batches and work shares (the part of a service's work on a kind) so that
// every path keeps its deadline, with its own batch and those to wait for (option batch-wait) at every step. Of these it chooses those with which the work at
// rate factor 1 (a common factor on all rates) takes the least part of the busiest kind's time.
//
// deviceTime of the result is that part times the number of all devices, so that with one kind it is the device time of the work. All
// devices divided by it are the rate factor that they carry without queueing. It leaves out memory and loads: no placement carries more.
func (w *workflowProblem) chooseBatches(ctx context.Context, counts []int) (*chosenBatches, error) {
	m, totalDevices := w.newBatchProgram(counts), lists.Total(counts)
	m.minimizeBusiestKind(counts)
	b, sol, err := m.solve(ctx)
	if err != nil {
		return nil, err
	}
	copy(b.counts, counts)
	for k, n := range counts {
		if n > 0 {
			b.deviceTime = max(b.deviceTime, b.kindTime(w, k)*float64(totalDevices)/float64(n))
		}
	}
	// With several kinds, the rows of times hold only up to the solver's tolerance, so the bound may be too high by that.
	b.deviceTimeBound = min(sol.Bound, b.deviceTime)
	if len(counts) > 1 {
		b.deviceTimeBound = min(sol.Bound*(1-1e-7), b.deviceTime)
	}
	b.deployOnIdleKinds(w.services) // which may help out at run time
	return b, nil
}

// newBatchProgram returns a program with the rows and variables that all programs of batches share: one batch size for each service (a
// model that applications ask for) on a kind of devices, the division of its work between the kinds, and the deadlines. counts has the
// devices by kind; a kind with 0 is left out. With one kind the objective is the time of its devices; with several the caller adds one.
func (w *workflowProblem) newBatchProgram(counts []int) *batchProgram {
	m := &batchProgram{problem: w, program: milp.New("batches of workflows")}
	for s := range w.services {
		m.addService(s, counts)
	}
	for a := range w.apps {
		m.addDeadlines(&w.apps[a])
	}
	return m
}

// addService adds the batch of service s (index of the problem's services). With one kind of devices it has exactly one, at the cost of
// its device time. With several it has at most one on each kind, at least one in all, and its work is divided between the kinds. z says
// which batch b is taken on kind k, y which part of the work it does:
//
//	Σ_b z_skb ≤ 1;   Σ_kb z_skb ≥ 1;   Σ_kb y_skb = 1;   0 ≤ y_skb ≤ z_skb
func (m *batchProgram) addService(s int, counts []int) {
	sv, oneKind := &m.problem.services[s], len(counts) == 1
	batches, workShares := make([][]milp.Var, len(counts)), make([][]milp.Var, len(counts))

	// Add the rows for all kinds together.
	var exactlyOneBatch, someBatch, allWork milp.Row
	if oneKind {
		exactlyOneBatch = m.program.AddEQ("batch of "+sv.name, 1)
	} else {
		someBatch = m.program.AddGE("batch of "+sv.name, 1)
		allWork = m.program.AddEQ("work of "+sv.name, 1)
	}
	for k, n := range counts {
		if n == 0 {
			continue
		}
		batchesOfKind := exactlyOneBatch
		if !oneKind {
			batchesOfKind = m.program.AddLE("", 1)
		}

		// Add z, and with several kinds y, for every useful batch.
		for i := range sv.byKind[k].batches {
			batch, cost := &sv.byKind[k].batches[i], 0.0
			if oneKind {
				cost = m.problem.serviceLoad(s) * batch.secondsPerTask()
			}
			z := m.addBatchChoice(fmt.Sprintf("%s %d", sv.name, batch.batch), cost)
			batches[k] = append(batches[k], z)
			m.program.AddTerm(batchesOfKind, z, 1)
			if !oneKind {
				y := m.program.AddVar("", 0, 1, 0)
				workShares[k] = append(workShares[k], y)
				m.program.AddTerm(someBatch, z, 1)
				m.program.AddTerm(allWork, y, 1)
				m.program.AddLE("", 0, milp.Term{Var: y, Coef: 1}, milp.Term{Var: z, Coef: -1})
			}
		}
	}
	m.batches, m.workShares = append(m.batches, batches), append(m.workShares, workShares)
}

// addBatchChoice adds a variable that says whether a batch is taken: 0 or 1. In the bound of all plans (withoutQueueing) a service may mix
// batches of several sizes, and the variable is the part of this one.
func (m *batchProgram) addBatchChoice(name string, objective float64) milp.Var {
	if m.problem.withoutQueueing {
		return m.program.AddVar(name, 0, 1, objective)
	}
	return m.program.AddBool(name, objective)
}

// serviceLoad returns the tasks per second, in tasks of the usual work, that all applications ask of service s
// if each has its weight as its rate.
func (w *workflowProblem) serviceLoad(s int) float64 {
	return lists.Sum(len(w.apps), func(a int) float64 { return w.apps[a].weight * w.apps[a].meanWork[s] })
}

// limitKindTime adds a row by which the time that all services (models) take of devices of kind k at rate factor 1 is at most factor
// times the variable v, both in devices. It is only for several kinds, where the work shares are variables.
func (m *batchProgram) limitKindTime(k int, v milp.Var, factor float64) {
	row := m.program.AddLE("time of "+m.problem.pools[k].Device, 0, milp.Term{Var: v, Coef: -factor})
	for s := range m.workShares {
		for i, workShare := range m.workShares[s][k] {
			m.program.AddTerm(row, workShare, m.problem.serviceLoad(s)*m.problem.services[s].byKind[k].batches[i].secondsPerTask())
		}
	}
}

// minimizeBusiestKind makes the program minimize the time of the busiest kind of devices, as a share of that kind, times
// the number of all devices. With one kind of devices it changes nothing, because addService has already made the device
// time the objective.
func (m *batchProgram) minimizeBusiestKind(counts []int) {
	if len(counts) == 1 {
		return
	}
	maxTime := m.program.AddVar("devices", 0, milp.Inf, 1)
	for k, n := range counts {
		m.limitKindTime(k, maxTime, float64(n)/float64(lists.Total(counts)))
	}
}

// kindTime returns the device time of kind k at rate factor 1, in devices.
func (b *chosenBatches) kindTime(w *workflowProblem, k int) float64 {
	return lists.Sum(len(w.services), func(s int) float64 { return b.serviceTime(w, s, k) })
}

// serviceTime returns the time that service s takes on devices of kind k at rate factor 1, in devices: its
// tasks per second there times the seconds of a task.
func (b *chosenBatches) serviceTime(w *workflowProblem, s, k int) float64 {
	if b.batch[s][k] == notDeployed {
		return 0
	}
	return b.workShare[s][k] * w.serviceLoad(s) * w.services[s].byKind[k].batches[b.batch[s][k]].secondsPerTask()
}

// solve solves a program that chooses batches, and returns them. A solution that misses a deadline by less than
// the solver's tolerance is excluded, and the program solved again. If there is none, the error is terms.ErrNoPlan.
func (m *batchProgram) solve(ctx context.Context) (*chosenBatches, *milp.Solution, error) {
	for {
		sol, err := m.problem.run.Solver.Solve(ctx, m.program, milp.Options{Gap: m.problem.gap, Seed: m.problem.seed})
		if err := terms.SolveError(ctx, sol, err, "the program of batches", "batches"); err != nil {
			return nil, nil, err
		}

		// Check the deadlines exactly.
		b := m.readBatches(sol)
		if m.problem.keepsDeadlines(b.batch) {
			return b, sol, nil
		}
		m.exclude(b)
	}
}

// readBatches returns, from a solution, the batch of each service (a model) on each kind of devices, as an index of its useful batches or
// notDeployed, and the shares of its work that the kinds get, scaled to sum 1.
func (m *batchProgram) readBatches(sol *milp.Solution) *chosenBatches {
	kinds := len(m.problem.pools)
	b := &chosenBatches{counts: make([]int, kinds), stoppedBy: sol.StoppedBy, nodes: sol.Stats.Nodes, iterations: sol.Stats.Iterations}
	for s := range m.batches {
		batch, workShare := make([]int, kinds), make([]float64, kinds)
		for k := range m.batches[s] {
			batch[k] = slices.IndexFunc(m.batches[s][k], func(v milp.Var) bool { return sol.Int(v) == 1 })
			if batch[k] < 0 {
				batch[k] = notDeployed
				continue
			}
			if workShare[k] = 1; kinds > 1 {
				workShare[k] = sol.At(m.workShares[s][k][batch[k]])
			}
			if workShare[k] < TimeTolerance {
				workShare[k] = 0
			}
		}

		// The shares sum to 1 only up to the solver's tolerance.
		totalShare := lists.Total(workShare)
		for k := range workShare {
			workShare[k] /= totalShare
		}
		b.batch, b.workShare = append(b.batch, batch), append(b.workShare, workShare)
	}
	return b
}

// exclude forbids the batches of a solution, all together: in it a path is too slow by less than the solver's tolerance. solve calls it
// and then solves again.
func (m *batchProgram) exclude(b *chosenBatches) {
	var terms []milp.Term
	for s := range b.batch {
		for k, batch := range b.batch[s] {
			if batch != notDeployed {
				terms = append(terms, milp.Term{Var: m.batches[s][k][batch], Coef: 1})
			}
		}
	}
	m.program.AddLE("barred", float64(len(terms)-1), terms...)
}

// deployOnIdleKinds lets kinds of devices to which the plan gives no work of a service run it too, in the largest batch that takes no
// longer than its batches on the other kinds, so that no path gets longer. At run time such devices may help out.
func (b *chosenBatches) deployOnIdleKinds(services []service) {
	for s := range b.batch {
		sv := &services[s]
		maxTime := sv.slowestBatch(b.batch[s])
		for k := range b.batch[s] {
			if b.counts[k] == 0 || b.workShare[s][k] > 0 {
				continue
			}

			// The batches are sorted by size, so the last one that is fast enough is the largest.
			for i := range sv.byKind[k].batches {
				if sv.byKind[k].batches[i].worstTime <= maxTime {
					b.batch[s][k] = i
				}
			}
		}
	}
}

// addDeadlines limits the time of every way that a request of application a may take to the application's budget, in seconds. A way is
// how often a request visits each segment (a part of the workflow), and a visit takes as long as the segment's longest path:
//
//	(1 + batch-wait) · Σ over visited segments of the longest path of worstTime ≤ SLO - margin
func (m *batchProgram) addDeadlines(a *workflow) {
	// The time of a segment is that of its longest path.
	segmentTime := make([]milp.Var, len(a.paths))
	for g := range a.paths {
		segmentTime[g] = m.program.AddVar("segment "+a.application.Name, 0, milp.Inf, 0)
		for _, path := range a.paths[g] {
			row := m.program.AddGE("path of "+a.application.Name, 0, milp.Term{Var: segmentTime[g], Coef: 1})
			for i := range path {
				m.program.AddTerm(row, m.addStepTime(a, &path[i]), -1)
			}
		}
	}

	// The wait in every step is a part of the budget. A bound without queueing has no wait and no margin.
	budget := (a.slo - a.margin).Seconds() / (1 + m.problem.batchWait)
	if m.problem.withoutQueueing {
		budget = a.slo.Seconds()
	}
	for _, v := range a.visits {
		row := m.program.AddLE("deadline of "+a.application.Name, budget)
		for g, n := range v.Counts {
			if n > 0 {
				m.program.AddTerm(row, segmentTime[g], float64(n))
			}
		}
	}
}

// addStepTime adds a variable for the time of a step of a path, in seconds, without waits: the longest of the services (models) that may
// run it, on any of the kinds of devices that run them, in the batches that the program chooses.
func (m *batchProgram) addStepTime(a *workflow, step *flow.PathStep) milp.Var {
	stepTime := m.program.AddVar("step", 0, milp.Inf, 0)
	for _, id := range step.Services {
		s := a.serviceOf[id]
		for k := range m.batches[s] {
			row := m.program.AddGE("step", 0, milp.Term{Var: stepTime, Coef: 1})
			for i, z := range m.batches[s][k] {
				m.program.AddTerm(row, z, -step.Work*m.problem.services[s].byKind[k].batches[i].worstTime.Seconds())
			}
		}
	}
	return stepTime
}

// keepsDeadlines returns whether the chosen batches keep all deadlines, computed exactly.
func (w *workflowProblem) keepsDeadlines(chosen [][]int) bool {
	for i := range w.apps {
		a := &w.apps[i]
		if visitTime := w.longestVisitTime(a, chosen); terms.ModuleTime(visitTime, visitTime, w.batchWait) > a.slo-a.margin {
			return false
		}
	}
	return true
}

// sloError returns the error for deadlines that no batches keep: it names the application whose SLO has to grow by the largest factor,
// and the least SLO that it could keep in batches of one.
func (w *workflowProblem) sloError() error {
	worstApp, maxStretch := 0, 0.0
	for i := range w.apps {
		app := &w.apps[i]
		singleTime := w.longestVisitTime(app, nil) // of a request in batches of one, without the waits, which are the same part of it for every application
		if stretch := singleTime.Seconds() / max((app.slo-app.margin).Seconds(), 1e-9); stretch > maxStretch {
			worstApp, maxStretch = i, stretch
		}
	}
	app := &w.apps[worstApp]
	singleTime := w.longestVisitTime(app, nil)
	requiredTime := terms.ModuleTime(singleTime, singleTime, w.batchWait) // with the waits
	marginShare := app.margin.Seconds() / app.slo.Seconds()
	minSLO := kind.MinSLO(requiredTime, marginShare)
	return &kind.InfeasibleError{Model: app.application.Name, Constraint: "slo",
		Reason: fmt.Sprintf("the longest way of %s at %s takes %v in batches of one, with %s and one's own at every step, and %v less the margin of %v leaves %v",
			app.application.Name, app.application.Percentile, requiredTime, terms.DescribeWait(w.batchWait), app.slo, app.margin, app.slo-app.margin),
		Nearest: kind.NearestFeasible{SLOUS: float64(minSLO) / 1000}} // nanoseconds to microseconds
}

// rateFactor returns the rate factor (on the rates of all applications) that the devices carry in the chosen batches without queueing,
// and an upper bound on that of any batches: devices divided by the device time at factor 1. Without work it returns 0.
func (b *chosenBatches) rateFactor() (value, bound float64) {
	if b.deviceTime <= 0 {
		return 0, 0
	}
	devices := float64(lists.Total(b.counts))
	value = devices / b.deviceTime
	if b.deviceTimeBound >= b.deviceTime*(1-1e-12) {
		return value, value
	}
	return value, devices / math.Max(b.deviceTimeBound, 1e-300)
}
