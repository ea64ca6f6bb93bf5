package workflow

import (
	"context"
	"errors"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/moves"
)

// outcomeNear returns the outcome of a plan that starts from the one that runs, which moves at most the share of the devices
// that the option max-moved says, and is no worse. b and p are the batches and the placement of the best plan of all, of the
// divided problem. The devices of workflows load models at run time, so a plan may start with what devices hold, unless the
// option algorithm is shares. It takes the plan that runs if its value is within the option gap of that of the best plan of
// all, and else that one with few loads at the start. If neither moves few enough devices, it returns an InfeasibleError.
func (w *workflowProblem) outcomeNear(ctx context.Context, divided *workflowProblem, b *chosenBatches, p *placement) (*kind.Outcome, error) {
	// The best plan of all, near what runs.
	common := *w.run // what holds for both plans
	bestPlan, err := divided.outcome(b, p)
	if err != nil {
		return nil, err
	}
	maxMoved := moves.MaxDevices(w.input, w.clusterPools)
	if err := moves.Renumber(w.input, bestPlan); err != nil {
		return nil, err
	}
	if bestPlan.Algorithm != terms.AlgorithmShares {
		limited := *p
		held, err := divided.limitMoves(bestPlan, maxMoved)
		if err != nil {
			return nil, err
		}
		limited.heldServices = divided.inPlacementOrder(bestPlan, b, held)
		placer := &placer{problem: divided, modelBytes: modelBytes(divided), placement: &limited}
		if err := placer.measureServed(ctx); err != nil {
			return nil, err
		}
		p, bestPlan.Phases[1].Value = &limited, limited.servedTime
	}
	divided.warnLoads(p)

	// What runs. It is a candidate if its devices are divided as they are to be now.
	silent := *w
	silent.run = &kind.SolveRun{Solver: w.run.Solver, Assumptions: slices.Clone(common.Assumptions), Warnings: slices.Clone(common.Warnings)}
	runningPlan, running, reason, err := silent.runningOutcome(ctx)
	if err != nil {
		return nil, err
	}
	chooser := &moves.Chooser{Sense: bestPlan.Sense, Gap: w.gap, MaxMoved: maxMoved}
	if reason == nil && running.problem.isDividedAs(divided) {
		takeBound(runningPlan, bestPlan, w.gap)
		chooser.Add(runningPlan)
	}
	bestMoved := chooser.Add(bestPlan)
	chosen := chooser.Best()
	switch {
	case chosen == nil:
		return nil, moves.TooManyError(w.clusterPools, maxMoved, bestMoved)
	case reason != nil:
		w.run.Assume("the plan that runs has no value of the objective today: %s", reason.Reason)
		return chosen, nil
	case chosen == runningPlan:
		w.run.Assumptions, w.run.Warnings = silent.run.Assumptions, silent.run.Warnings
	}
	chosen.Replan.RunningValue = &runningPlan.Objective.Value
	return chosen, nil
}

// takeBound gives the plan that runs the bound of the best plan of all, which holds for it, too, unless it has a language
// model that drains, and so no bound.
func takeBound(runningPlan, bestPlan *kind.Outcome, gap float64) {
	o := &runningPlan.Objective
	if bestPlan.Objective.Bound == nil || DrainsLanguageModel(runningPlan.Deployment, formats.FlowOf(&formats.Plan{Section: runningPlan.Section}).Modules) {
		return
	}
	bound := kind.ValidBound(runningPlan.Sense, o.Value, *bestPlan.Objective.Bound)
	runningPlan.Objective = kind.BoundedObjective(o.Name, o.Value, bound)
	runningPlan.Objective.BoundAmong = bestPlan.Objective.BoundAmong
	runningPlan.StoppedBy = kind.StopReason(*runningPlan.Objective.Gap, gap)
}

// runningOutcome returns the plan that runs with its outcome by today's documents, or the reason why it has none.
func (w *workflowProblem) runningOutcome(ctx context.Context) (o *kind.Outcome, running *runningWorkflows, reason *kind.InfeasibleError, err error) {
	if running, reason = w.readRunning(); reason != nil {
		return nil, nil, reason, nil
	}
	if o, err = running.outcome(ctx); errors.As(err, &reason) {
		return nil, nil, reason, nil
	}
	return o, running, nil, err
}

// keepRunning returns the outcome of the plan that runs, by today's documents.
func (w *workflowProblem) keepRunning(ctx context.Context) (*kind.Outcome, error) {
	o, _, reason, err := w.runningOutcome(ctx)
	if reason != nil {
		return nil, reason
	}
	if err == nil {
		o.Replan.RunningValue = &o.Objective.Value
	}
	return o, err
}

// limitMoves lets the devices of a renumbered plan start with what they hold, as far as they run it and have the memory for
// it. As many as maxMoved load what the plan has for them instead, as long as a service has fewer copies than its work takes
// devices, the service that lacks the most first. It returns the services that devices hold then, by number through all pools.
func (w *workflowProblem) limitMoves(o *kind.Outcome, maxMoved int) (held [][]int, err error) {
	plan := &formats.Plan{Kind: w.input.RunningPlan.Kind, Pools: o.Pools, Deployment: o.Deployment, Section: o.Section}
	section := *formats.FlowOf(plan)
	section.Modules = slices.Clone(section.Modules)
	target, current := residentsOf(plan), w.heldResidents(plan)

	// The copies that each service has, and takes.
	copies, needed := make([]int, len(section.Modules)), make([]int, len(section.Modules))
	for _, held := range current {
		for _, s := range held {
			copies[s]++
		}
	}
	for s := range needed {
		deviceTime := lists.Sum(len(o.Deployment[s].Pipelines), func(i int) float64 { return o.Deployment[s].Pipelines[i].Stages[0].GPUs })
		if deviceTime > TimeTolerance*float64(len(o.Deployment[s].Pipelines)) {
			needed[s] = int(math.Ceil(deviceTime - 1e-6))
		}
	}

	// Move devices to services that lack copies.
	loads := make([]bool, len(current))
	for range maxMoved {
		device, lack := -1, 0
		for d := range current {
			for _, s := range target[d] {
				if !loads[d] && !slices.Contains(current[d], s) && needed[s]-copies[s] > lack {
					device, lack = d, needed[s]-copies[s]
				}
			}
		}
		if device < 0 {
			break
		}
		for _, s := range current[device] {
			copies[s]--
		}
		for _, s := range target[device] {
			copies[s]++
		}
		current[device], loads[device] = target[device], true
	}

	// Write what the devices hold.
	for s := range section.Modules {
		section.Modules[s].Resident = nil
		for d := range current {
			if slices.Contains(current[d], s) {
				section.Modules[s].Resident = append(section.Modules[s].Resident, d)
			}
		}
	}
	o.Section = &section
	return current, moves.Renumber(w.input, o)
}

// inPlacementOrder returns what devices hold, which held has by number through all pools of an outcome, in the order of the
// devices of its placement: by kind. Devices of a kind run the same services.
func (w *workflowProblem) inPlacementOrder(o *kind.Outcome, b *chosenBatches, held [][]int) (ordered [][]int) {
	isTaken := make([]bool, len(held))
	for k, count := range b.counts {
		for range count {
			var services []int
			if d := w.nextDevice(o, b, k, isTaken); d >= 0 {
				services, isTaken[d] = held[d], true
			}
			ordered = append(ordered, services)
		}
	}
	return ordered
}

// nextDevice returns the first device of an outcome that is not taken and runs the services of kind k, or -1.
func (w *workflowProblem) nextDevice(o *kind.Outcome, b *chosenBatches, k int, isTaken []bool) int {
	firstDevice := lists.Sum(w.partitions[k].pool, func(i int) int { return o.Pools[i].Count })
	pool := &o.Pools[w.partitions[k].pool]
	for n := range pool.Count {
		runsSame := !isTaken[firstDevice+n]
		for s := range w.services {
			runsSame = runsSame && o.Deployment[s].RunsOn(pool.Device, n) == (b.batch[s][k] != notDeployed)
		}
		if runsSame {
			return firstDevice + n
		}
	}
	return -1
}

// residentsOf returns, by device numbered through all pools, the modules that it holds at the start, by index.
func residentsOf(plan *formats.Plan) [][]int {
	devices := lists.Sum(len(plan.Pools), func(k int) int { return plan.Pools[k].Count })
	held := make([][]int, devices)
	for s, m := range formats.FlowOf(plan).Modules {
		for _, d := range m.Resident {
			held[d] = append(held[d], s)
		}
	}
	return held
}

// heldResidents returns, by device numbered through all pools, the modules of a new plan, by index, that it can start with
// without a load: those that it holds under the plan that runs, and runs under the new one. If its memory does not hold all
// of them beside the largest batch, the first that fit.
func (w *workflowProblem) heldResidents(plan *formats.Plan) (held [][]int) {
	contents, section := moves.HeldByPool(w.input.RunningPlan, plan.Pools), formats.FlowOf(plan)
	for k := range plan.Pools {
		pool := &plan.Pools[k]
		workingBytes := section.WorkingBytesByDevice(plan.Deployment, pool)
		for n := range pool.Count {
			var services []int
			freeBytes := int64(math.MaxInt64)
			if pool.Memory > 0 {
				freeBytes = int64(pool.Memory) - workingBytes[n]
			}
			for s := range plan.Deployment {
				d := &plan.Deployment[s]
				isHeld := contents[k][n].Covers(formats.DeviceContent{moves.WholeModel(d, 1)})
				if weights := section.Modules[s].WeightBytes; isHeld && d.RunsOn(pool.Device, n) && weights <= freeBytes {
					services, freeBytes = append(services, s), freeBytes-weights
				}
			}
			held = append(held, services)
		}
	}
	return held
}
