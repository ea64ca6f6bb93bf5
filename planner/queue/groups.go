package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/queue/deploy"
	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
	"inferplan/solver/stoch"
)

// queueWindow is the time whose arrivals form the queue that a plan begins with.
const queueWindow = time.Minute

// Limits of the search for the order of the first groups (positions that it looks at) and of a program
// (nodes, groups).
const (
	orderPositions   = 200_000
	orderNodes       = 2000
	maxProgramGroups = 14 // groups of one program
)

// orderFirstGroups writes into the plan's section q the request groups (requests of one class with similar lengths, which are scheduled
// as one) that the first minute of arrivals would make, in an order for the instances of each pool. The pools share no requests, so each
// is ordered as a problem of its own. The plan states it as an example of its queues.
func (s *queuePlanner) orderFirstGroups(ctx context.Context, c *candidate, q *formats.QueuePlan) error {
	requests, err := c.search.Trials.FirstRequests(c.result.Layout, queueWindow)
	if err != nil {
		return err
	}

	// firstInstance is the index, among the plan's instances, of the pool's first one.
	firstInstance := 0
	for i := range c.result.Layout.Pools {
		x := &c.result.Layout.Pools[i]
		o := &poolQueue{input: s.input, run: s.run, search: c.search, pool: x, seedName: fmt.Sprintf("order/%d", i)}
		if err := o.formGroups(requests); err != nil {
			return err
		}
		if err := o.arrangeGroups(ctx); err != nil {
			return err
		}
		if err := o.writeGroups(ctx, q, firstInstance); err != nil {
			return err
		}
		firstInstance += x.InstanceCount()
	}
	s.run.Assume("groups: the queue that the requests of the first %v make, if all of them wait", queueWindow)
	return nil
}

// poolQueue is the queue of one pool, with the groups in it and their order.
type poolQueue struct {
	input    *kind.Problem
	run      *kind.SolveRun
	search   *deploy.Search
	pool     *deploy.Pool
	seedName string
	groups   []requestGroup
	problem  *vqueue.Problem
	state    *vqueue.Assignment
}

// requestGroup is a request group of an item.
type requestGroup struct {
	item     int
	mega     bool // of mega prompts, which are many times longer than the median
	requests []vqueue.RequestFeatures
}

// formGroups forms the request groups of the pool from the requests that it serves: requests of one item (a class for a model) and of
// similar lengths, by deadline or by arrival, which are scheduled as one. A group has at most the option group-scale times as many
// requests as run at once on an instance. The group's requests are appended to o.groups.
func (o *poolQueue) formGroups(requests []vqueue.RequestFeatures) error {
	// The field Model of a request has the index of its item.
	var poolRequests []vqueue.RequestFeatures
	for _, r := range requests {
		if slices.Contains(o.pool.Items, int(r.Model)) {
			poolRequests = append(poolRequests, r)
		}
	}
	if len(poolRequests) == 0 {
		return nil
	}

	// Cluster the requests by their lengths.
	clusters, err := vqueue.NewClusters(poolRequests, len(o.search.Problem.Items), vqueue.ClusterOptions{}, seeded.New(max(o.input.Seed, 1), o.seedName+"/clusters"))
	if err != nil {
		return fmt.Errorf("forming groups: %w", err)
	}

	// Form groups within the clusters.
	memberOrder := vqueue.ByDeadline
	if o.input.Values.Word("group-by") == "arrival" {
		memberOrder = vqueue.ByArrival
	}
	scale := o.input.Values.Number("group-scale")
	for _, g := range clusters.FormGroups(poolRequests, memberOrder, func(item int32) int {
		return int(scale * float64(o.pool.MaxConcurrent(o.search.Problem.Items[item].Model)))
	}) {
		first := &poolRequests[g[0]] // all requests of a group have its item and cluster
		group := requestGroup{item: int(first.Model), mega: clusters.IsMega(clusters.ClusterOf(first))}
		group.requests = lists.Map(len(g), func(i int) vqueue.RequestFeatures { return poolRequests[g[i]] })
		o.groups = append(o.groups, group)
	}
	return nil
}

// buildProblem builds the problem of ordering the pool's request groups on its instances, as package vqueue has it, in o.problem: groups
// with deadlines and with their work on each kind of servers, in seconds, and a queue for each instance with the times to load each
// model. Infinite work or loads mean that a model cannot run there.
func (o *poolQueue) buildProblem() error {
	p := &vqueue.Problem{Kinds: len(o.search.Problem.Kinds), Models: len(o.search.Problem.Models), Objective: vqueue.RecommendedObjective}

	// Groups, with their cost on each kind of server.
	for i := range o.groups {
		g := &o.groups[i]
		deadlines := make([]float64, len(g.requests))
		prompts := 0.0
		for n, r := range g.requests {
			deadlines[n] = r.Deadline
			prompts += r.Prompt
		}
		item := &o.search.Problem.Items[g.item]
		model, class := item.Model, &o.search.Problem.Classes[item.Class]
		p.Groups = append(p.Groups, vqueue.Group{Model: int32(model), Priority: int32(class.Priority), Size: float64(len(g.requests)), Deadline: vqueue.QuantileDeadlines(deadlines)})
		for k := range o.search.Problem.Kinds {
			cost := vqueue.Cost{Work: math.Inf(1)}
			if o.search.Problem.Models[model].ByKind[k] != nil && o.pool.Counts[k] > 0 {
				// The estimator's cost is that of mean lengths. The work is replaced by that of the real lengths of the prompts, which
				// are known, and of the mean length of answers.
				e, err := o.search.Estimators.Estimator(model, k, o.pool.Caps[k][model], g.mega)
				if err != nil {
					return err
				}
				n := float64(len(g.requests))
				cost = e.Cost(n)
				cost.Work = e.Alpha*prompts + n*e.Beta*e.OutputMean
			}
			p.Costs = append(p.Costs, cost)
		}
	}

	// Queues, one for each instance, with the time to load each model. The models are loaded in turn.
	nextModel := 0
	models := o.search.Problem.ModelsOf(o.pool.Items)
	for k, n := range o.pool.Counts {
		for range n {
			// Model is the one that is loaded at the start: the pool's models take turns.
			q := vqueue.Queue{Kind: int32(k), Model: int32(models[nextModel%len(models)]), Setup: make([]float64, len(o.search.Problem.Models))}
			nextModel++
			if o.search.Problem.Models[q.Model].ByKind[k] != nil {
				e, err := o.search.Estimators.Estimator(int(q.Model), k, o.pool.Caps[k][q.Model], false)
				if err != nil {
					return err
				}
				// Work ahead of a request is in the running batch at first, and does not make it wait. The estimator has that as a
				// negative intercept, so the queue counts as started before the time 0.
				q.Start = min(0, e.Intercept)
			}
			for m := range q.Setup {
				q.Setup[m] = math.Inf(1)
				if instance := o.search.Problem.Models[m].ByKind[k]; instance != nil && slices.Contains(models, m) {
					q.Setup[m] = 0
					if instance.Loads != nil {
						// Nothing is warm yet, so the load is a cold one. The model before it leaves the device first.
						loadTime := max(instance.Loads.ColdUS, instance.Loads.WarmUS)
						q.Setup[m] = (loadTime + instance.Loads.LeavesUS()).D().Seconds()
					}
				}
			}
			p.Queues = append(p.Queues, q)
		}
	}
	o.problem = p
	return p.Validate()
}

// arrangeGroups orders the request groups of the pool on its instances, in o.state, with the algorithm that the options ask for:
// greedily, by a search from there, or by a mixed-integer program from the order that the search found. Without groups it leaves o.state
// nil.
func (o *poolQueue) arrangeGroups(ctx context.Context) error {
	if len(o.groups) == 0 {
		return nil
	}
	if err := o.buildProblem(); err != nil {
		return fmt.Errorf("posing the order of groups: %w", err)
	}
	o.state = vqueue.NewAssignment(o.problem)
	o.state.InsertGreedily()
	algorithm := o.input.Values.Word("algorithm")
	if algorithm == "greedy" {
		return nil
	}
	var x vqueue.Search
	effort := int64(1) << (o.input.Values.WholeNumber("effort") - 1)
	x.Run(ctx, o.state, seeded.New(max(o.input.Seed, 1), o.seedName+"/search"), effort*orderPositions)
	if algorithm == "search" {
		return nil
	}
	return o.improveByProgram(ctx, algorithm == "saa", orderNodes*effort)
}

// improveByProgram solves a mixed-integer program for the order of the groups, starting from the order that the search found, and
// replaces that by the program's order if it has one. With useScenarios it judges orders by random samples of the groups' times, else by
// mean times. nodes limits the branching. More than maxProgramGroups groups are an error; a result that is not proven adds a warning to
// the plan.
func (o *poolQueue) improveByProgram(ctx context.Context, useScenarios bool, nodes int64) error {
	if len(o.groups) > maxProgramGroups {
		return &document.Error{Path: "--algorithm", Found: fmt.Sprintf("a program for %d groups", len(o.groups)), Expected: fmt.Sprintf("at most %d", maxProgramGroups),
			Hint: "larger groups (--group-scale) are fewer, or --algorithm search"}
	}

	// The program judges by mean times or, with scenarios, by samples of them.
	means := *o.problem
	means.Objective = vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-3}
	opt := Options{Goal: LateRequests, QueueLength: len(o.groups)}
	if useScenarios {
		// cv is the coefficient of variation of each group's work, 0 if it cannot run in the first queue.
		cv := make([]float64, len(o.groups))
		for i := range cv {
			c := means.Cost(int32(i), means.Queues[0].Kind)
			if cv[i] = math.Sqrt(c.Variance) / max(c.Work, 1e-9); math.IsInf(c.Work, 1) {
				cv[i] = 0
			}
		}
		opt.Scenarios = stoch.SampleScenarios(seeded.New(max(o.input.Seed, 1), o.seedName+"/scenarios"), 5, len(means.Queues), vqueue.RecommendedObjective.CommonSD, cv)
	}
	program, err := NewProgram(&means, opt)
	if err != nil {
		return err
	}

	// Start from the order of the search.
	start := vqueue.NewAssignment(&means)
	for i := range means.Queues {
		for position, g := range o.state.AppendOrder(int32(i), nil) {
			start.Insert(g, int32(i), position)
		}
	}
	result, err := program.Solve(ctx, o.run.Solver, milp.Options{MaxNodes: nodes, Seed: int32(o.input.Seed % math.MaxInt32)}, start)
	if err != nil {
		return err
	}
	if result.Order != nil {
		o.state = StateFromOrder(o.problem, result.Order)
	}
	if result.Solution.Status != milp.Optimal {
		o.run.Warn("the program for the order of groups ended with status %s", result.Solution.Status)
	}
	return nil
}

// completionShares are the quantiles of a group's completion time that a plan states.
var completionShares = []float64{0.5, 0.9, 0.99}

// writeGroups adds the pool's request groups, in the order found, to the plan's section q: for each its expected start and end, and
// quantiles, the times by which all of it is answered with given probabilities. Quantiles take long to compute: if ctx has ended, groups
// get none, and a warning says so. firstInstance is the index of the pool's first instance in the plan. A pool without groups (no state)
// adds nothing.
func (o *poolQueue) writeGroups(ctx context.Context, q *formats.QueuePlan, firstInstance int) error {
	if o.state == nil {
		return nil
	}
	for i := range o.problem.Queues {
		var workAhead []estimatorWork // by estimator, the group's own work included
		for position, g := range o.state.AppendOrder(int32(i), nil) {
			group, kind := &o.groups[g], o.problem.Queues[i].Kind
			model := o.search.Problem.Items[group.item].Model
			estimator, err := o.search.Estimators.Estimator(model, int(kind), o.pool.Caps[kind][model], group.mega)
			if err != nil {
				return err
			}

			// Add the group's work to that before it in the queue. All groups with one estimator share its error, so their work counts as
			// one sum; the errors of different estimators are independent, and their variances add up.
			cost := o.problem.Cost(g, kind)
			index := slices.IndexFunc(workAhead, func(w estimatorWork) bool { return w.estimator == estimator })
			if index < 0 {
				index, workAhead = len(workAhead), append(workAhead, estimatorWork{estimator: estimator})
			}
			workAhead[index].work += cost.Work
			// of the time at which the group's work ends
			strayVariance := lists.Sum(len(workAhead), func(i int) float64 { return workAhead[i].estimator.WaitVariance(workAhead[i].work) })

			// A group ends when its last answer does, a residence after its work.
			start, _ := o.state.Start(int32(i), position)
			described := o.describeGroup(group, estimator)
			described.StartUS, described.CompletionUS = toMicros(start), toMicros(start+cost.Work+cost.Residence)
			for _, share := range completionShares {
				if ctx.Err() != nil {
					break
				}
				endsAt := estimator.AllAnsweredBy(share, start, cost.Work, math.Sqrt(strayVariance), len(group.requests))
				described.Quantiles = append(described.Quantiles, formats.QueueQuantile{Share: share, AtUS: max(toMicros(endsAt), described.StartUS)}) // not before its expected start
			}
			q.Instances[firstInstance+i].Groups = append(q.Instances[firstInstance+i].Groups, len(q.Groups))
			q.Groups = append(q.Groups, described)
		}
	}
	if ctx.Err() != nil {
		o.run.Warn("interrupted: groups of requests have no quantiles of their completion")
	}
	return nil
}

// estimatorWork is work of a queue, in seconds, that one estimator predicts.
type estimatorWork struct {
	estimator *vqueue.RCT
	work      float64
}

// describeGroup returns a request group as the plan describes it: model, class, number of requests, mean lengths in tokens and the
// earliest deadline. The caller adds the group's times. e is the estimator of its request times, which also has the variance of the
// lengths of answers.
func (o *poolQueue) describeGroup(x *requestGroup, e *vqueue.RCT) formats.RequestGroup {
	item := &o.search.Problem.Items[x.item]
	description := formats.RequestGroup{Model: o.search.Problem.Models[item.Model].Name, Class: o.search.Problem.Classes[item.Class].Name, Mega: x.mega, Requests: len(x.requests), DeadlineUS: toMicros(math.Inf(1))}
	outputs := 0.0
	for _, m := range x.requests {
		description.PromptMean += m.Prompt / float64(len(x.requests))
		outputs += m.Output / float64(len(x.requests))
		description.DeadlineUS = min(description.DeadlineUS, toMicros(m.Deadline))
	}
	description.PromptMean, description.OutputMean, description.OutputSD = math.Round(description.PromptMean), math.Round(outputs), math.Round(math.Sqrt(e.OutputVar))
	return description
}

// toMicros converts seconds into the whole microseconds of a plan, within limits.
func toMicros(seconds float64) document.Micros {
	const maxMicros = 1e12
	return document.Micros(time.Duration(math.Round(min(max(seconds, 0)*1e6, maxMicros))) * time.Microsecond)
}
