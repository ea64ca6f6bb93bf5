package deploy

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/lists"
)

// PlanWriter makes plans of layouts.
type PlanWriter struct {
	problem    *Problem
	estimators *Estimators
}

// Deployment returns the deployment of a plan, in the order of items.
func (p *PlanWriter) Deployment(items []int) []formats.Deployed {
	deployed := make([]formats.Deployed, len(items))
	for n, i := range items {
		item := &p.problem.Items[i]
		deployed[n] = formats.Deployed{Model: p.problem.Models[item.Model].Name, Class: p.problem.Classes[item.Class].Name, NumBlocks: 1, Pipelines: []formats.Pipeline{}}
	}
	return deployed
}

// Section returns the queue section of the plan of a layout (pools of instances): the given items as classes, their models, the memory of
// the hosts, every instance with its devices, the operations on evicted requests and loads, and the estimators of request times. A trial
// of a single pool has only the items of that pool.
func (p *PlanWriter) Section(l *Layout, items []int) (*formats.QueuePlan, error) {
	q := &formats.QueuePlan{}
	nextDevice := make([]int, len(p.problem.Pools))
	for i := range l.Pools {
		if err := p.addInstances(q, &l.Pools[i], nextDevice, items); err != nil {
			return nil, err
		}
	}
	if !Fleet(q.Instances).IsOneSize() {
		packLargestFirst(q.Instances)
	}
	return q, p.completeSection(q, items)
}

// packLargestFirst puts instances on the first devices of their kinds, those on the most devices first, so that these are on one node.
func packLargestFirst(instances []formats.QueueInstance) {
	order := lists.Indexes(len(instances))
	slices.SortStableFunc(order, func(a, b int) int { return instances[b].TensorParallel - instances[a].TensorParallel })
	nextByDevice := map[string]int{}
	for _, i := range order {
		instances[i].FirstDevice = nextByDevice[instances[i].Device]
		nextByDevice[instances[i].Device] += instances[i].TensorParallel
	}
}

// completeSection adds to a section with instances alone what they serve: the given items as classes, their models, the memory of the
// hosts, the operations on evicted requests and loads, and the estimators of request times.
func (p *PlanWriter) completeSection(q *formats.QueuePlan, items []int) error {
	q.Classes = append(q.Classes, lists.Map(len(items), func(i int) formats.QueueClass { return p.planClass(items[i]) })...)
	for _, m := range p.problem.ModelsOf(items) {
		q.Models = append(q.Models, p.planProfile(m))
	}
	q.Hosts = p.planHosts(items)
	q.Operations = p.estimators.planOperations(q)
	return p.addEstimates(q)
}

// planClass returns item i as a class of the plan: its model, rate and SLO, and the lengths of its requests.
func (p *PlanWriter) planClass(i int) formats.QueueClass {
	item := &p.problem.Items[i]
	c := &p.problem.Classes[item.Class]
	class := formats.QueueClass{
		Served: formats.Served{Model: p.problem.Models[item.Model].Name, Class: c.Name, SLOUS: document.Micros(c.SLO), Percentile: c.Percentile, Weight: item.Weight, RPS: item.RPS},
		Figure: c.Figure, WaitingUS: document.Micros(c.WaitingSLO), Priority: c.Priority, MaxTokens: c.MaxTokens, Prompt: c.Prompt, Output: c.Output, Sessions: c.Sessions,
	}
	class.PromptMean, class.OutputMean, class.OutputSD = lengthMoments(c.Sample)
	return class
}

// planProfile returns the profile of a model with the instances that the problem has.
func (p *PlanWriter) planProfile(m int) formats.LLMProfile {
	profile := *p.problem.Models[m].Profile
	profile.Instances = nil
	for _, in := range p.problem.Models[m].ByKind {
		if in != nil {
			profile.Instances = append(profile.Instances, *in)
		}
	}
	return profile
}

// planHosts returns, for each kind of servers, the memory of its hosts that models may use, in bytes: for every server of a node enough
// for the weights of the largest models of items, as many as the option warm-models says. If there are more warm models than models, the
// largest one counts for each of the rest. Without warm models it returns nil.
func (p *PlanWriter) planHosts(items []int) []formats.QueueHost {
	var sizes []int64
	for _, m := range p.problem.ModelsOf(items) {
		sizes = append(sizes, p.problem.Models[m].Profile.WeightBytes)
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	serverBytes := int64(0)
	for _, s := range sizes[:min(len(sizes), p.problem.WarmModels)] {
		serverBytes += s
	}
	if len(sizes) > 0 && p.problem.WarmModels > len(sizes) {
		serverBytes += int64(p.problem.WarmModels-len(sizes)) * sizes[0]
	}

	// A host has the memory for all servers of its node, of the smallest servers if they differ.
	var hosts []formats.QueueHost
	for k := range p.problem.Kinds {
		device, devicesPerNode := p.problem.Kinds[k].Device, p.problem.Pools[p.problem.Kinds[k].Pool].WithDefaults().PerNode
		if serverBytes == 0 {
			continue
		}
		bytes := serverBytes * int64(max(1, devicesPerNode/p.problem.Kinds[k].TP))
		if h := document.First(hosts, func(h *formats.QueueHost) bool { return h.Device == device }); h != nil {
			h.MemoryBytes = max(h.MemoryBytes, bytes)
			continue
		}
		hosts = append(hosts, formats.QueueHost{Device: device, MemoryBytes: bytes})
	}
	return hosts
}

// addInstances adds the instances of a pool x to plan q, on the next free devices. nextDevice has the first free device of each pool of
// the cluster, and is moved on. items are those of the plan (classes of requests for a model). A class of them that asks for a model of x,
// but is served by another pool, gets a cap of 0 on these instances, which keeps it away.
func (p *PlanWriter) addInstances(q *formats.QueuePlan, x *Pool, nextDevice []int, items []int) error {
	models := p.problem.ModelsOf(x.Items)
	nextModel := 0
	for k, n := range x.Counts {
		kind := &p.problem.Kinds[k]
		for range n {
			in := formats.QueueInstance{Device: kind.Device, FirstDevice: nextDevice[kind.Pool], TensorParallel: kind.TP, TokenBudget: defaultTokenBudget}
			nextDevice[kind.Pool] += kind.TP

			// The models that can run there, with their caps.
			for _, m := range models {
				instance := p.problem.Models[m].ByKind[k]
				if instance == nil {
					continue
				}
				in.Models = append(in.Models, p.problem.Models[m].Name)
				in.Sequences = append(in.Sequences, x.Caps[k][m])
				in.TokenBudget = tokenBudget(instance) // an instance has one budget: that of its last model
			}
			if len(in.Models) == 0 {
				return fmt.Errorf("a pool with %s that runs none of its models there", kind.Device)
			}

			// in.Model is loaded at the start: the first model on the first instance, the next one on the next, and so on.
			in.Model = in.Models[nextModel%len(in.Models)]
			nextModel++
			in.Caps = p.classCaps(x, items, models)
			q.Instances = append(q.Instances, in)
		}
	}
	return nil
}

// classCaps returns the limits on the sequences of single classes on the instances of pool x, for the plan. A class that asks for the
// pool's models but is served by another pool gets a limit of 0, which keeps its requests away; a class that the pool serves is listed
// only if it has a limit. items are those of the plan, models those of the pool.
func (p *PlanWriter) classCaps(x *Pool, items, models []int) []formats.ClassCap {
	var caps []formats.ClassCap
	for c := range p.problem.Classes {
		requested, servedHere := false, false
		for _, i := range items {
			if item := &p.problem.Items[i]; item.Class == c && slices.Contains(models, item.Model) {
				requested = true
				servedHere = servedHere || slices.Contains(x.Items, i)
			}
		}
		if requested && (!servedHere || x.ClassCaps[c] > 0) {
			caps = append(caps, formats.ClassCap{Class: p.problem.Classes[c].Name, Sequences: x.ClassCaps[c]})
		}
	}
	return caps
}

// addEstimates adds to plan q an estimator of request times for each model on each kind of servers that runs it, and another one for mega
// prompts (many times longer than the median) where there are enough of them. If the instances there differ in their caps (concurrent
// sequences), the cap counts that the most have. An estimator names its number of devices only if q has servers of another size on that
// kind of devices.
func (p *PlanWriter) addEstimates(q *formats.QueuePlan) error {
	for m := range p.problem.Models {
		name := p.problem.Models[m].Name
		for kind := range p.problem.Kinds {
			sequences := p.commonSequences(q, name, kind)
			if sequences == 0 {
				continue
			}
			tensorParallel := 0
			if isOtherSize := func(in formats.QueueInstance) bool {
				return p.problem.kindOf(&in) != kind && in.Device == p.problem.Kinds[kind].Device
			}; slices.ContainsFunc(q.Instances, isOtherSize) {
				tensorParallel = p.problem.Kinds[kind].TP
			}
			estimators, err := p.estimators.estimateFor(m, kind, sequences)
			if err != nil {
				return err
			}
			q.Estimates = append(q.Estimates, planEstimate(estimators.rct, name, p.problem.Kinds[kind].Device, tensorParallel, 0))
			if estimators.mega != nil {
				q.Estimates = append(q.Estimates, planEstimate(estimators.mega, name, p.problem.Kinds[kind].Device, tensorParallel, estimators.megaTokens))
			}
		}
	}
	return nil
}

// commonSequences returns the cap (concurrent sequences) that the most instances of a model on a kind of servers have in plan q, the
// first of equals. If none runs the model there, it returns 0.
func (p *PlanWriter) commonSequences(q *formats.QueuePlan, model string, kind int) (sequences int) {
	counts := map[int]int{}
	for i := range q.Instances {
		if m := slices.Index(q.Instances[i].Models, model); m >= 0 && p.problem.kindOf(&q.Instances[i]) == kind {
			counts[q.Instances[i].Sequences[m]]++
		}
	}
	for i := range q.Instances {
		if m := slices.Index(q.Instances[i].Models, model); m >= 0 && p.problem.kindOf(&q.Instances[i]) == kind && counts[q.Instances[i].Sequences[m]] > counts[sequences] {
			sequences = q.Instances[i].Sequences[m]
		}
	}
	return sequences
}

// kindOf returns the kind of servers that an instance is of, or -1 if the problem has none such.
func (p *Problem) kindOf(in *formats.QueueInstance) int {
	return slices.IndexFunc(p.Kinds, func(k Kind) bool { return k.Device == in.Device && k.TP == in.TensorParallel })
}

// Plan returns a plan of the layout for some items (classes of requests for a model), complete enough to be simulated. Without arrivals
// in the workload it has Poisson arrivals.
func (p *PlanWriter) Plan(l *Layout, items []int) (*formats.Plan, error) {
	q, err := p.Section(l, items)
	if err != nil {
		return nil, err
	}
	return p.planOf(q, items), nil
}

// planOf returns the plan of a section, complete enough to be simulated.
func (p *PlanWriter) planOf(q *formats.QueuePlan, items []int) *formats.Plan {
	arrivals := p.problem.Arrivals
	if arrivals == nil {
		arrivals = &formats.Arrivals{Process: "poisson"}
	}
	return &formats.Plan{
		Format: formats.FormatPlan, Kind: formats.PlanQueue, Seed: p.problem.Seed, Pools: p.problem.Pools, Deployment: p.Deployment(items), Section: q,
		Policy: p.problem.Policy, Arrivals: arrivals,
	}
}
