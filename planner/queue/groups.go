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
	"inferplan/planner/queue/deploy"
	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
	"inferplan/solver/stoch"
)

// queueWindow is the time whose arrivals form the queue that a plan begins with.
const window = time.Minute

// Limits of the search for the order of the first groups (positions that it looks at) and of a program
// (nodes, groups).
const (
	orderWork  = 200_000
	orderNodes = 2000
	mostExact  = 14 // groups of one program
)

// orderFirstGroups forms request groups of the first minute of arrivals and orders them on the instances of
// each pool. Pools share no requests, so each pool is a problem of its own.
func (s *solving) order(ctx context.Context, c *candidate, q *formats.QueuePlan) error {
	list, err := c.p.Arriving(c.found.Layout, window)
	if err != nil {
		return err
	}
	first := 0
	for i := range c.found.Layout.Pools {
		x := &c.found.Layout.Pools[i]
		o := &ordering{solving: s, p: c.p, pool: x, seed: fmt.Sprintf("order/%d", i)}
		if err := o.form(list); err != nil {
			return err
		}
		if err := o.arrange(ctx); err != nil {
			return err
		}
		if err := o.write(ctx, q, first); err != nil {
			return err
		}
		first += x.Instances()
	}
	s.run.Assume("groups: the queue that the requests of the first %v make, if all of them wait", window)
	return nil
}

// poolQueue is the queue of one pool, with the groups in it and their order.
type ordering struct {
	*solving
	p       *deploy.Search
	pool    *deploy.Pool
	seed    string
	groups  []grouped
	problem *vqueue.Problem
	state   *vqueue.State
}

// requestGroup is a request group of an item.
type grouped struct {
	item     int
	mega     bool
	requests []vqueue.Request
}

// formGroups forms the groups of the pool's requests, by item and lengths. A group has at most group-scale
// times as many requests as run at once.
func (o *ordering) form(list []vqueue.Request) error {
	var mine []vqueue.Request
	for _, r := range list {
		if slices.Contains(o.pool.Items, int(r.Model)) {
			mine = append(mine, r)
		}
	}
	if len(mine) == 0 {
		return nil
	}

	// Cluster the requests by their lengths.
	clusters, err := vqueue.NewClusters(mine, len(o.p.Items), vqueue.ClusterOptions{}, seeded.New(max(o.in.Seed, 1), o.seed+"/clusters"))
	if err != nil {
		return fmt.Errorf("forming groups: %w", err)
	}

	// Form groups within the clusters.
	members := vqueue.ByDeadline
	if o.in.Values.Word("group-by") == "arrival" {
		members = vqueue.ByArrival
	}
	scale := o.in.Values.Number("group-scale")
	for _, g := range clusters.Form(mine, members, func(item int32) int { return int(scale * float64(o.p.LargestCap(o.pool, int(item)))) }) {
		x := grouped{item: int(mine[g[0]].Model), mega: clusters.Mega(clusters.Of(&mine[g[0]]))}
		for _, i := range g {
			x.requests = append(x.requests, mine[i])
		}
		o.groups = append(o.groups, x)
	}
	return nil
}

// buildProblem builds the ordering problem of the groups on the pool's instances.
func (o *ordering) pose() error {
	p := &vqueue.Problem{Kinds: len(o.p.Kinds), Models: len(o.p.Models), Objective: vqueue.Recommended}

	// Groups, with their cost on each kind of server.
	for i := range o.groups {
		g := &o.groups[i]
		deadlines := make([]float64, len(g.requests))
		prompts := 0.0
		for n, r := range g.requests {
			deadlines[n] = r.Deadline
			prompts += r.Prompt
		}
		model := o.p.Items[g.item].Model
		p.Groups = append(p.Groups, vqueue.Group{Model: int32(model), Priority: int32(o.p.Classes[o.p.Items[g.item].Class].Priority), Size: float64(len(g.requests)), Deadline: vqueue.DeadlinesOf(deadlines)})
		for k := range o.p.Kinds {
			cost := vqueue.Cost{Work: math.Inf(1)}
			if o.p.Models[model].On[k] != nil && o.pool.Counts[k] > 0 {
				e, err := o.p.Estimator(model, k, o.pool.Caps[k][model], g.mega)
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
	turn := 0
	models := o.p.ModelsOf(o.pool.Items)
	for k, n := range o.pool.Counts {
		for range n {
			q := vqueue.Queue{Kind: int32(k), Model: int32(models[turn%len(models)]), Setup: make([]float64, len(o.p.Models))}
			turn++
			if o.p.Models[q.Model].On[k] != nil {
				e, err := o.p.Estimator(int(q.Model), k, o.pool.Caps[k][q.Model], false)
				if err != nil {
					return err
				}
				q.Start = min(0, e.Intercept) // the first batch does not wait
			}
			for m := range q.Setup {
				q.Setup[m] = math.Inf(1)
				if on := o.p.Models[m].On[k]; on != nil && slices.Contains(models, m) {
					q.Setup[m] = 0
					if on.Loads != nil {
						q.Setup[m] = (max(on.Loads.ColdUS, on.Loads.WarmUS) + on.Loads.LeavesUS()).D().Seconds() // nothing is warm yet
					}
				}
			}
			p.Queues = append(p.Queues, q)
		}
	}
	o.problem = p
	return p.Validate()
}

// arrangeGroups orders the groups with the algorithm that was asked for.
func (o *ordering) arrange(ctx context.Context) error {
	if len(o.groups) == 0 {
		return nil
	}
	if err := o.pose(); err != nil {
		return fmt.Errorf("posing the order of groups: %w", err)
	}
	o.state = vqueue.NewState(o.problem)
	o.state.Greedy()
	algorithm := o.in.Values.Word("algorithm")
	if algorithm == "greedy" {
		return nil
	}
	var x vqueue.Search
	effort := int64(1) << (o.in.Values.Whole("effort") - 1)
	x.Run(ctx, o.state, seeded.New(max(o.in.Seed, 1), o.seed+"/search"), effort*orderWork)
	if algorithm == "search" {
		return nil
	}
	return o.prove(ctx, algorithm == "saa", orderNodes*effort)
}

// improveByProgram solves a mixed-integer program for the order, from the order that the search found.
func (o *ordering) prove(ctx context.Context, sampled bool, nodes int64) error {
	if len(o.groups) > mostExact {
		return &document.Error{Path: "--algorithm", Found: fmt.Sprintf("a program for %d groups", len(o.groups)), Expected: fmt.Sprintf("at most %d", mostExact),
			Hint: "larger groups (--group-scale) are fewer, or --algorithm search"}
	}

	// The program judges by mean times or, with scenarios, by samples of them.
	means := *o.problem
	means.Objective = vqueue.Objective{Judge: vqueue.ByMeans, Late: 1, Tardy: 1e-3, End: 1e-3}
	opt := Options{Goal: Late, Length: len(o.groups)}
	if sampled {
		cv := make([]float64, len(o.groups))
		for i := range cv {
			c := means.Cost(int32(i), means.Queues[0].Kind)
			if cv[i] = math.Sqrt(c.Variance) / max(c.Work, 1e-9); math.IsInf(c.Work, 1) {
				cv[i] = 0
			}
		}
		opt.Scenarios = stoch.Sample(seeded.New(max(o.in.Seed, 1), o.seed+"/scenarios"), 5, len(means.Queues), vqueue.Recommended.Common, cv)
	}
	program, err := NewProgram(&means, opt)
	if err != nil {
		return err
	}

	// Start from the order of the search.
	start := vqueue.NewState(&means)
	for i := range means.Queues {
		for place, g := range o.state.Order(int32(i), nil) {
			start.Insert(g, int32(i), place)
		}
	}
	exact, err := program.Solve(ctx, o.run.Solver, milp.Options{MaxNodes: nodes, Seed: int32(o.in.Seed % math.MaxInt32)}, start)
	if err != nil {
		return err
	}
	if exact.Order != nil {
		o.state = State(o.problem, exact.Order)
	}
	if exact.Solution.Status != milp.Optimal {
		o.run.Warn("the program for the order of groups ended with status %s", exact.Solution.Status)
	}
	return nil
}

// completionShares are the quantiles of a group's completion time that a plan states.
var shares = []float64{0.5, 0.9, 0.99}

// writeGroups adds the groups and their order to the plan. firstInstance is the index of the pool's first
// instance. If ctx has ended, groups get no quantiles.
func (o *ordering) write(ctx context.Context, q *formats.QueuePlan, first int) error {
	if o.state == nil {
		return nil
	}
	for i := range o.problem.Queues {
		var ahead []worked // by estimator, the group's own work included
		for place, g := range o.state.Order(int32(i), nil) {
			x, kind := &o.groups[g], o.problem.Queues[i].Kind
			e, err := o.p.Estimator(o.p.Items[x.item].Model, int(kind), o.pool.Caps[kind][o.p.Items[x.item].Model], x.mega)
			if err != nil {
				return err
			}

			// Add the group's work to that before it. The variances of the estimators' errors add up.
			cost := o.problem.Cost(g, kind)
			at := slices.IndexFunc(ahead, func(w worked) bool { return w.by == e })
			if at < 0 {
				at, ahead = len(ahead), append(ahead, worked{by: e})
			}
			ahead[at].work += cost.Work
			strays := 0.0
			for _, w := range ahead {
				strays += w.by.Strays(w.work)
			}

			// Write the group with its expected times and their quantiles.
			start, _ := o.state.Start(int32(i), place)
			r := o.described(x, e)
			r.StartUS, r.CompletionUS = micros(start), micros(start+cost.Work+cost.Residence)
			for _, share := range shares {
				if ctx.Err() != nil {
					break
				}
				at := e.Ended(share, start, cost.Work, math.Sqrt(strays), len(x.requests))
				r.Quantiles = append(r.Quantiles, formats.QueueQuantile{Share: share, AtUS: max(micros(at), r.StartUS)})
			}
			q.Instances[first+i].Groups = append(q.Instances[first+i].Groups, len(q.Groups))
			q.Groups = append(q.Groups, r)
		}
	}
	if ctx.Err() != nil {
		o.run.Warn("interrupted: groups of requests have no quantiles of their completion")
	}
	return nil
}

// estimatorWork is work of a queue, in seconds, that one estimator predicts.
type worked struct {
	by   *vqueue.RCT
	work float64
}

// describeGroup returns the plan's description of a group, without its times.
func (o *ordering) described(x *grouped, e *vqueue.RCT) formats.RequestGroup {
	item := &o.p.Items[x.item]
	r := formats.RequestGroup{Model: o.p.Models[item.Model].Name, Class: o.p.Classes[item.Class].Name, Mega: x.mega, Requests: len(x.requests), DeadlineUS: micros(math.Inf(1))}
	outputs := 0.0
	for _, m := range x.requests {
		r.PromptMean += m.Prompt / float64(len(x.requests))
		outputs += m.Output / float64(len(x.requests))
		r.DeadlineUS = min(r.DeadlineUS, micros(m.Deadline))
	}
	r.PromptMean, r.OutputMean, r.OutputSD = math.Round(r.PromptMean), math.Round(outputs), math.Round(math.Sqrt(e.OutputVar))
	return r
}

// toMicros converts seconds into the whole microseconds of a plan, within limits.
func micros(seconds float64) document.Micros {
	const most = 1e12
	return document.Micros(time.Duration(math.Round(min(max(seconds, 0)*1e6, most))) * time.Microsecond)
}
