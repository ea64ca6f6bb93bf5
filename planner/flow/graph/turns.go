package graph

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"inferplan/planner/flow/terms"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// Modules may take turns on the devices of a time-shared pool. The modules that do so are on all devices of
// the pool but those that a model has to itself, and each has a share of the time there. A device runs one
// batch at a time, so a task may find it busy with the longest run of any of these modules. If B is that
// run, a module that takes turns takes
//
//	D + β·max(D, B)
//
// of the deadline (β: batches that a request waits for, option batch-wait), where one with devices of its own takes (1+β)·D. B depends on the levels that are chosen, so
// the program is solved for every value that B can have, and each program leaves out levels with longer
// runs. Values with the highest bounds come first.

// maxRunLimits limits how many values of B are tried. Of more values, some evenly spread ones are tried.
const maxRunLimits = 24

// hasTimeSharedPool returns whether modules may take turns on some pool.
func (p *problem) hasTimeSharedPool() bool {
	return slices.ContainsFunc(p.pools, func(k pool) bool { return k.timeShared && k.count > 0 })
}

// sharedRunTimes returns, by rising time, the values that the longest run can have on devices where modules take turns: the longest batch
// time of each template (a way to use a device) of time-shared pools. The callers solve the problem for each of these limits. If there are
// more than maxRunLimits, it returns so many of them, evenly spread, and complete is false.
func (p *problem) sharedRunTimes() (times []time.Duration, complete bool) {
	for u := range p.models {
		for _, l := range p.models[u].levels {
			for k, t := range l.templates {
				if p.pools[k].timeShared && t.rate > 0 {
					times = append(times, t.worstTime)
				}
			}
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	if len(times) <= maxRunLimits {
		return times, true
	}
	spread := lists.Filled(maxRunLimits, func(i int) time.Duration { return times[i*(len(times)-1)/(maxRunLimits-1)] })
	return spread, false
}

// limitSharedRuns returns a copy of the problem in which models may also take turns on time-shared devices, with runs of at most maxRun:
// every model gets such levels (limits on batch times) beside its own. A module that takes turns may have to wait for a run of maxRun, which
// counts in its deadline. withoutWaits leaves out that wait, which makes the problem a relaxation: no plan is better than its optimum.
func (p *problem) limitSharedRuns(maxRun time.Duration, withoutWaits bool) *problem {
	sharingProblem := *p
	sharingProblem.models, sharingProblem.maxSharedRun = slices.Clone(p.models), maxRun
	if withoutWaits {
		sharingProblem.maxSharedRun = 0
	}
	for u := range sharingProblem.models {
		levels := slices.Clone(p.models[u].levels)
		for _, l := range p.models[u].levels {
			sharedLevel := level{maxTime: l.maxTime, templates: slices.Clone(l.templates), timeShared: true}
			anyTemplate := false
			for k := range sharedLevel.templates {
				if p.pools[k].timeShared && sharedLevel.templates[k].worstTime > maxRun {
					sharedLevel.templates[k] = template{}
				}
				anyTemplate = anyTemplate || p.pools[k].timeShared && sharedLevel.templates[k].rate > 0
			}
			if anyTemplate {
				levels = append(levels, sharedLevel)
			}
		}
		sharingProblem.models[u].levels = levels
	}
	return &sharingProblem
}

// sharedRunProblem is the problem for one value of the longest run.
type sharedRunProblem struct {
	p           *problem
	factorBound float64 // bound of the factor
}

// sharedRunProblems returns the problems that throughputWithSharing solves, those with the highest bound on the rate factor (common to
// all rates) first. There is one for each limit on the longest run (batch time) of the modules that take turns: a task may have to wait
// for such a run, so the limit is part of every deadline. Limits without a plan are left out. unlistedBound is a bound on the factor for
// the limits that were not tried, 0 if all were.
func (s *planSearch) sharedRunProblems(ctx context.Context) (list []sharedRunProblem, unlistedBound float64, err error) {
	maxRuns, complete := s.problem.sharedRunTimes()
	for _, maxRun := range maxRuns {
		p := s.problem.limitSharedRuns(maxRun, false)
		factorBound, err := s.withProblem(p).factorBound(ctx)
		if err != nil && !errors.Is(err, terms.ErrNoPlan) {
			return nil, 0, err
		}
		if err == nil {
			list = append(list, sharedRunProblem{p, factorBound})
		}
	}
	// The problem with the longest run as its limit and without waits allows every plan that the limits left out allow.
	if !complete {
		const withoutWaits = true
		relaxation := s.problem.limitSharedRuns(maxRuns[len(maxRuns)-1], withoutWaits)
		if unlistedBound, err = s.withProblem(relaxation).factorBound(ctx); err != nil {
			return nil, 0, err
		}
	}
	slices.SortStableFunc(list, func(a, b sharedRunProblem) int { return cmp.Compare(b.factorBound, a.factorBound) })
	return list, unlistedBound, nil
}

// withProblem returns a search like s for another problem. It reports no progress.
func (s *planSearch) withProblem(p *problem) *planSearch {
	silent := *s
	silent.problem, silent.onImproved = p, nil
	return &silent
}

// throughputWithSharing finds the largest rate factor (on the rates of all applications) where modules may take turns on devices: it
// solves the problem of each limit on their runs, the one with the highest bound first, until no other can be better. Each problem has
// levels of its own (limits on batch times), so the result names the one that its solution belongs to.
func (s *planSearch) throughputWithSharing(ctx context.Context) (*solveResult, error) {
	// bound is the largest bound of the limits that were not tried, of the problems solved so far, and of those that are not solved.
	list, bound, err := s.sharedRunProblems(ctx)
	if err != nil {
		return nil, err
	}
	var bestResult *solveResult
	nodes, iterations := int64(0), int64(0)

	// Solve the problems by falling bound, until no other can be better than the best result.
	for _, v := range list {
		if bestResult != nil && v.factorBound <= bestResult.value*(1+1e-9) {
			bound = max(bound, v.factorBound)
			break // those that follow are no better
		}
		result, err := s.withProblem(v.p).solveProgram(ctx, programQuery{goal: goalMaxRate, maxFactor: v.factorBound}, milp.Options{})
		switch {
		case errors.Is(err, terms.ErrNoPlan):
			continue
		case err != nil && bestResult != nil && ctx.Err() != nil:
			bestResult.bound, bestResult.stoppedBy = max(bound, v.factorBound), milp.StoppedByInterrupt
			return bestResult, nil
		case err != nil:
			return nil, err
		}
		provenFactor := result.bound * v.factorBound // the program's bound is in parts of its maxFactor
		nodes, iterations, bound = nodes+result.nodes, iterations+result.iterations, max(bound, provenFactor)
		if result.problem, result.value = v.p, v.p.rateFactor(result.solution); bestResult == nil || result.value > bestResult.value {
			bestResult = result
			if s.onImproved != nil {
				s.onImproved(bestResult.value, list[0].factorBound) // the highest bound of all listed problems
			}
		}
	}
	if bestResult == nil {
		return nil, terms.ErrNoPlan
	}

	// Add up the effort, and say why the search ended.
	bestResult.nodes, bestResult.iterations, bestResult.bound = nodes, iterations, max(bound, bestResult.value)
	bestResult.stoppedBy = bestResult.stopReason(s.gap)
	return bestResult, nil
}

// minStretchPlan finds the plan that needs the least factor on all SLOs to keep them, whatever the rates. The
// explanation of a problem without a plan calls it.
func (s *planSearch) minStretchPlan(ctx context.Context) (*solveResult, error) {
	if !s.problem.hasTimeSharedPool() {
		return s.solveProgram(ctx, programQuery{goal: goalMinStretch, maxFactor: 1}, milp.Options{})
	}

	// Where modules may take turns, deadlines depend on the longest run of these. Solve the problem of every limit on it; if there are
	// very many limits, of some of them.
	var bestResult *solveResult
	maxRuns, _ := s.problem.sharedRunTimes()
	for _, maxRun := range maxRuns {
		p := s.problem.limitSharedRuns(maxRun, false)
		result, err := s.withProblem(p).solveProgram(ctx, programQuery{goal: goalMinStretch, maxFactor: 1}, milp.Options{})
		if err != nil && !errors.Is(err, terms.ErrNoPlan) {
			return nil, err
		}
		if err == nil && (bestResult == nil || result.value < bestResult.value) {
			bestResult, result.problem = result, p
		}
	}
	if bestResult == nil {
		return nil, terms.ErrNoPlan
	}
	return bestResult, nil
}

// sharedDevices returns how many devices of pool k are left for the modules that take turns there.
func (s *solution) sharedDevices(p *problem, k int) int {
	n := p.pools[k].count
	for u := range s.devices {
		n -= s.devices[u][k]
	}
	return n
}

// fillSharedTime scales, in the solution, the models' parts of the time of shared devices so that in each pool they sum to all of these
// devices.
func (s *solution) fillSharedTime(p *problem) {
	for k := range p.pools {
		sum := lists.Sum(len(s.timeShares), func(u int) float64 { return s.timeShares[u][k] })
		if sum > 0 {
			scale := float64(s.sharedDevices(p, k)) / sum
			for u := range s.timeShares {
				s.timeShares[u][k] *= scale
			}
		}
	}
}

// addTimeShare adds and returns the variable for the time of shared devices that model u takes at level l on pool k, in devices (G_k are
// shared there). Each device must hold all models that have a share:
//
//	Σ_ul y_ulk ≤ G_k;   Σ over models with y_ulk > 0 of their memory ≤ that of a device
func (x *program) addTimeShare(u, l, k int, name string) milp.Var {
	pool, t := &x.problem.pools[k], &x.problem.models[u].levels[l].templates[k]
	timeShare := x.m.AddVar("time "+name+" "+pool.kind, 0, float64(pool.count), 0)
	x.m.AddTerm(x.sharedTime[k], timeShare, 1)
	if pool.memory > 0 {
		present := x.addInteger("on "+name+" "+pool.kind, 1, 0)
		x.m.AddLE("", 0, milp.Term{Var: timeShare, Coef: 1}, milp.Term{Var: present, Coef: -float64(pool.count)})
		x.m.AddTerm(x.sharedMemory[k], present, float64(t.memory)/float64(pool.memory))
	}
	return timeShare
}

// addSharedDevices adds, for every time-shared pool, the number of devices on which modules take turns (G in docs/methods/flow.md), with rows
// for their time and memory; addTimeShare adds what models take of both. Their time sums to that of all these devices. Every one of the
// devices holds all models that take turns, so their memory is limited by that of one device. A pool without such devices has -1 for all
// three. So has every pool if missing devices are counted, because each model then has a device of its own.
func (x *program) addSharedDevices() {
	for k := range x.problem.pools {
		pool := &x.problem.pools[k]
		devices, timeRow, memoryRow := milp.Var(-1), milp.Row(-1), milp.Row(-1)
		if pool.timeShared && pool.count > 0 && x.query.goal != goalMissingDevices {
			devices = x.addInteger("in turns "+pool.kind, float64(pool.count), 0)
			x.m.AddTerm(x.poolCapacity[k], devices, 1)
			timeRow = x.m.AddLE("time "+pool.kind, 0, milp.Term{Var: devices, Coef: -1})
			memoryRow = x.m.AddLE("memory "+pool.kind, 1) // in parts of a device's memory
		}
		x.sharedDevices, x.sharedTime, x.sharedMemory = append(x.sharedDevices, devices), append(x.sharedTime, timeRow), append(x.sharedMemory, memoryRow)
	}
}

// minTimeShare is the least part of a device that counts as a time share. Smaller values come from the
// solver's tolerance.
const minTimeShare = 1e-7

// readTimeShares reads, from a solution of the program, each model's part of the time of shared devices, in
// devices, and scales the parts up to all of that time.
func (x *program) readTimeShares(sol *milp.Solution, s *solution) {
	s.timeShares = nil
	for u, l := range s.level {
		shares := make([]float64, len(x.problem.pools))
		for k := range shares {
			if l < 0 || !x.problem.isTimeShared(u, l, k) || x.devices[u][l][k] < 0 {
				continue
			}
			if n := sol.At(x.devices[u][l][k]); n > minTimeShare {
				shares[k] = n
			}
		}
		s.timeShares = append(s.timeShares, shares)
	}
	s.fillSharedTime(x.problem)
}

// isTimeShared returns whether model u at level l takes turns on the devices of pool k. Otherwise it has
// devices of its own.
func (p *problem) isTimeShared(u, l, k int) bool {
	return p.models[u].levels[l].timeShared && p.pools[k].timeShared
}

// moduleTime returns what a module takes of the deadline at a level: the wait for its device, and a batch
// of its own.
func (p *problem) moduleTime(l *level) time.Duration {
	longestRun := l.maxTime
	if l.timeShared {
		longestRun = max(longestRun, p.maxSharedRun)
	}
	return terms.ModuleTime(l.maxTime, longestRun, p.batchWait)
}

// timeSharedRate returns the rate, in requests per second, that model u carries with its part of the time of
// devices on which models take turns.
func (s *solution) timeSharedRate(p *problem, u int) float64 {
	sum := 0.0
	if s.timeShares != nil && s.level[u] >= 0 {
		for k, n := range s.timeShares[u] {
			sum += n * p.models[u].levels[s.level[u]].templates[k].rate
		}
	}
	return sum
}
