package workflow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/moves"
	"inferplan/solver/milp"
)

// runningWorkflows is the plan that runs, in the numbers of a problem of its own: its devices, divided as they are, run the
// models that they run today, in the same batches.
type runningWorkflows struct {
	problem      *workflowProblem
	heldServices [][]int // by device of the problem: the services that it holds at the start
}

// runningDevice is a device of a pool of the plan that runs.
type runningDevice struct {
	services     []int // that run there
	heldServices []int // that it holds at the start
}

// readRunning returns the plan that runs. If the problem does not have a batch of it, or it does not run a service that is
// asked for, it returns the reason as an error.
func (w *workflowProblem) readRunning() (*runningWorkflows, *kind.InfeasibleError) {
	running := w.input.RunningPlan
	divided := *w
	divided.partitions, divided.pools, divided.prices, divided.services = nil, nil, nil, slices.Clone(w.services)
	for s := range divided.services {
		divided.services[s].byKind = nil
	}
	r := &runningWorkflows{problem: &divided}
	for k, held := range moves.HeldByPool(running, w.clusterPools) {
		// Devices that run the same services form a partition.
		devices, firstDevice := w.runningDevices(k, held), 0
		for i := range devices {
			services := devices[i].services
			isFirst := !slices.ContainsFunc(devices[:i], func(o runningDevice) bool { return slices.Equal(o.services, services) })
			if len(services) == 0 || !isFirst {
				continue
			}
			count := 0
			for _, o := range devices[i:] {
				if slices.Equal(o.services, services) {
					r.heldServices = append(r.heldServices, o.heldServices)
					count++
				}
			}
			divided.addPartition(w, partition{k, firstDevice}, count, func(s int) bool { return slices.Contains(services, s) })
			firstDevice += count
			for _, s := range services {
				if err := divided.keepBatch(s, running); err != nil {
					return nil, err
				}
			}
		}
	}
	for s := range divided.services {
		if !slices.ContainsFunc(divided.services[s].byKind, func(on serviceOnKind) bool { return len(on.batches) > 0 }) {
			return nil, &kind.InfeasibleError{Constraint: "running", Reason: "it does not run " + divided.services[s].name + " as the profile has it"}
		}
	}
	return r, nil
}

// keepBatch leaves service s, on the partition that was added last, the batch only that it has there in the plan that runs.
func (w *workflowProblem) keepBatch(s int, running *formats.Plan) *kind.InfeasibleError {
	last := len(w.pools) - 1
	on := &w.services[s].byKind[last]
	for stage := range running.Stages() {
		if stage.Deployed.Model != w.services[s].name || stage.Device != w.pools[last].Device {
			continue
		}
		i := slices.IndexFunc(on.batches, func(b usefulBatch) bool { return b.batch == stage.Pipeline.Batch })
		if i < 0 {
			return &kind.InfeasibleError{Constraint: "running", Reason: fmt.Sprintf("batches of %d of %s on %s are none of those that are useful today", stage.Pipeline.Batch, stage.Deployed.Model, stage.Device)}
		}
		on.batches = on.batches[i : i+1]
		on.workingBytes = on.workingMemory(0, w.services[s].weights)
		return nil
	}
	return nil
}

// runningDevices returns the devices of a pool of the cluster as they run. contents has what they hold at the start.
func (w *workflowProblem) runningDevices(k int, contents []formats.DeviceContent) []runningDevice {
	devices := make([]runningDevice, len(contents))
	for stage := range w.input.RunningPlan.Stages() {
		whole := moves.WholeModel(stage.Deployed, 1)
		s := w.unchangedService(&whole)
		for n := range stage.Devices() {
			if s >= 0 && stage.Device == w.clusterPools[k].Device && n < len(devices) && !slices.Contains(devices[n].services, s) {
				devices[n].services = append(devices[n].services, s)
			}
		}
	}
	for n, content := range contents {
		for _, part := range content {
			if s := w.unchangedService(&part); s >= 0 && slices.Contains(devices[n].services, s) {
				devices[n].heldServices = append(devices[n].heldServices, s)
			}
		}
	}
	return devices
}

// unchangedService returns the index of the service that is a model of the plan that runs, or -1 if none is, or the profile
// has another file of it.
func (w *workflowProblem) unchangedService(part *formats.HeldPart) int {
	return slices.IndexFunc(w.services, func(o service) bool { return moves.IsUnchanged(part, o.profile, 1) })
}

// outcome returns the plan that runs, by today's documents, with the numbers of its devices. If it does not keep a deadline
// or, with given rates, does not carry them, it returns the reason as an error.
func (r *runningWorkflows) outcome(ctx context.Context) (*kind.Outcome, error) {
	w := r.problem
	b, err := w.chooseBatches(ctx, w.deviceCounts())
	if errors.Is(err, terms.ErrNoPlan) {
		return nil, &kind.InfeasibleError{Constraint: "running", Reason: "it does not keep every deadline with the margin"}
	}
	if err != nil {
		return nil, err
	}
	if devices := float64(lists.Total(b.counts)); w.objective != "throughput" {
		if b.deviceTime > devices*(1+1e-9) {
			return nil, &kind.InfeasibleError{Constraint: "running", Reason: fmt.Sprintf("it carries %s of the rates", kind.FormatPercent(devices/b.deviceTime))}
		}
		b.price = 0
		for k, count := range b.counts {
			b.price += w.prices[k] * float64(count)
		}
	}
	placer := &placer{problem: w, modelBytes: modelBytes(w), placement: newPlacement(w, b)}
	placer.placement.heldServices = r.startContents(b, placer)
	placer.placement.servedBound = lists.Total(placer.placement.totalTime)
	if err := placer.measureServed(ctx); err != nil {
		return nil, err
	}
	o, err := w.outcome(b, placer.placement)
	if err != nil {
		return nil, err
	}
	w.warnLoads(placer.placement)
	o.Objective, o.StoppedBy = kind.BoundedObjective(w.objective, o.Objective.Value, math.NaN()), milp.StoppedByWork // a bound here is one of these batches alone
	o.Phases[0].Bound = math.NaN()
	if err := moves.Renumber(w.input, o); err != nil {
		return nil, err
	}
	return o, nil
}

// startContents returns, by device, the services that it holds and still runs in the chosen batches, as far as its memory
// suffices.
func (r *runningWorkflows) startContents(b *chosenBatches, placer *placer) (held [][]int) {
	for d, k := range placer.placement.kindOf {
		var services []int
		freeBytes := placer.modelBytes[k]
		for _, s := range r.heldServices[d] {
			if weights := r.problem.services[s].weights; b.batch[s][k] != notDeployed && weights <= freeBytes {
				services, freeBytes = append(services, s), freeBytes-weights
			}
		}
		held = append(held, services)
	}
	return held
}

// measureServed sets how much of the planned time runs on devices that hold the service at the start, by the program of
// placements with these. If the program is too large, all of the time counts.
func (r *placer) measureServed(ctx context.Context) error {
	p := r.placement
	p.servedTime = lists.Total(p.totalTime)
	if len(p.kindOf)*len(r.problem.services) > maxPlacementSize {
		return nil
	}
	m, holdVars := r.newProgram()
	for d := range holdVars {
		for s, x := range holdVars[d] {
			if x >= 0 && !slices.Contains(p.heldServices[d], s) {
				m.SetBounds(x, 0, 0)
			}
		}
	}
	sol, err := r.problem.run.Solver.Solve(ctx, m, milp.Options{Gap: r.problem.gap, Seed: r.problem.seed, MaxNodes: maxPlacementNodes})
	if err != nil {
		return fmt.Errorf("solving the program of a placement: %w", err)
	}
	if sol.Feasible() {
		p.servedTime = min(p.servedTime, sol.Value)
	}
	return nil
}

// isDividedAs reports whether the devices of two problems are divided between the same models.
func (w *workflowProblem) isDividedAs(o *workflowProblem) bool {
	groupsOf := func(w *workflowProblem) (groups []string) {
		for k := range w.partitions {
			text := fmt.Sprint(w.partitions[k].pool)
			for s := range w.services {
				if len(w.services[s].byKind[k].batches) > 0 {
					text += " " + w.services[s].name
				}
			}
			groups = append(groups, text)
		}
		slices.Sort(groups)
		return groups
	}
	return slices.Equal(groupsOf(w), groupsOf(o))
}
