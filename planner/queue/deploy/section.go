package deploy

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// PlanWriter makes plans of layouts.
type Writer struct{ *Estimators }

// Deployment returns the deployment of a plan, in the order of items.
func (p *Writer) Deployment(items []int) []formats.Deployed {
	out := make([]formats.Deployed, len(items))
	for n, i := range items {
		it := &p.Items[i]
		out[n] = formats.Deployed{Model: p.Models[it.Model].Name, Class: p.Classes[it.Class].Name, NumBlocks: 1, Pipelines: []formats.Pipeline{}}
	}
	return out
}

// Section returns the queue section of a plan, with those items that it serves.
func (p *Writer) Section(l *Layout, items []int) (*formats.QueuePlan, error) {
	q := &formats.QueuePlan{}
	for _, i := range items {
		q.Classes = append(q.Classes, p.class(i))
	}
	for _, m := range p.ModelsOf(items) {
		q.Models = append(q.Models, p.profileOf(m))
	}
	q.Hosts = p.hosts(items)

	// Place the instances of all pools, then describe operations and estimators.
	next := make([]int, len(p.Pools))
	for i := range l.Pools {
		if err := p.addInstances(q, &l.Pools[i], next, items); err != nil {
			return nil, err
		}
	}
	q.Operations = p.operations(q)
	return q, p.addEstimates(q, l)
}

// planClass returns the plan's class of an item, with what it promises.
func (p *Writer) class(i int) formats.QueueClass {
	it := &p.Items[i]
	c := &p.Classes[it.Class]
	out := formats.QueueClass{
		Served: formats.Served{Model: p.Models[it.Model].Name, Class: c.Name, SLOUS: document.Micros(c.SLO), Percentile: c.Percentile, Weight: it.Weight, RPS: it.RPS},
		Of:     c.Of, WaitingUS: document.Micros(c.Waiting), Priority: c.Priority, MaxTokens: c.MaxTokens, Prompt: c.Prompt, Output: c.Output, Sessions: c.Sessions,
	}
	out.PromptMean, out.OutputMean, out.OutputSD = moments(c.Sample)
	return out
}

// planProfile returns the profile of a model with the instances that the problem has.
func (p *Writer) profileOf(m int) formats.LLMProfile {
	out := *p.Models[m].Profile
	out.Instances = nil
	for _, in := range p.Models[m].On {
		if in != nil {
			out.Instances = append(out.Instances, *in)
		}
	}
	return out
}

// planHosts returns the hosts' memory beside each kind: enough for the largest models that are kept warm
// there.
func (p *Writer) hosts(items []int) []formats.QueueHost {
	var sizes []int64
	for _, m := range p.ModelsOf(items) {
		sizes = append(sizes, p.Models[m].Profile.WeightBytes)
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	each := int64(0)
	for _, s := range sizes[:min(len(sizes), p.Warm)] {
		each += s
	}
	if len(sizes) > 0 && p.Warm > len(sizes) {
		each += int64(p.Warm-len(sizes)) * sizes[0]
	}
	var out []formats.QueueHost
	for k := range p.Kinds {
		if per := p.Pools[p.Kinds[k].Pool].WithDefaults().PerNode; each > 0 {
			out = append(out, formats.QueueHost{Device: p.Kinds[k].Device, MemoryBytes: each * int64(max(1, per/p.Kinds[k].TP))})
		}
	}
	return out
}

// addInstances adds the instances of a pool on the next free devices. nextDevice has the first free device
// by pool of the cluster.
func (p *Writer) addInstances(q *formats.QueuePlan, x *Pool, next []int, items []int) error {
	models := p.ModelsOf(x.Items)
	turn := 0
	for k, n := range x.Counts {
		kind := &p.Kinds[k]
		for range n {
			in := formats.QueueInstance{Device: kind.Device, First: next[kind.Pool], TensorParallel: kind.TP, TokenBudget: budgetOf}
			next[kind.Pool] += kind.TP

			// The models that can run there, with their caps.
			for _, m := range models {
				on := p.Models[m].On[k]
				if on == nil {
					continue
				}
				in.Models = append(in.Models, p.Models[m].Name)
				in.Sequences = append(in.Sequences, x.Caps[k][m])
				in.TokenBudget = budget(on)
			}
			if len(in.Models) == 0 {
				return fmt.Errorf("a pool with %s that runs none of its models there", kind.Device)
			}

			// The models take turns as the one that is loaded at the start.
			in.Model = in.Models[turn%len(in.Models)]
			turn++
			in.Caps = p.kept(x, items, models)
			q.Instances = append(q.Instances, in)
		}
	}
	return nil
}

// classCaps returns the caps of classes on the instances of a pool. A cap of 0 keeps away classes that
// other pools serve.
func (p *Writer) kept(x *Pool, items, models []int) []formats.ClassCap {
	var out []formats.ClassCap
	for c := range p.Classes {
		asked, served := false, false
		for _, i := range items {
			if it := &p.Items[i]; it.Class == c && slices.Contains(models, it.Model) {
				asked = true
				served = served || slices.Contains(x.Items, i)
			}
		}
		if asked && (!served || x.Of[c] > 0) {
			out = append(out, formats.ClassCap{Class: p.Classes[c].Name, Sequences: x.Of[c]})
		}
	}
	return out
}

// addEstimates adds an estimator for each model on each kind, at the cap of the pool with the most
// instances there.
func (p *Writer) addEstimates(q *formats.QueuePlan, l *Layout) error {
	for m := range p.Models {
		for k := range p.Kinds {
			most, cap := 0, 0
			for i := range l.Pools {
				x := &l.Pools[i]
				if x.Counts[k] > most && p.Models[m].On[k] != nil && slices.Contains(p.ModelsOf(x.Items), m) {
					most, cap = x.Counts[k], x.Caps[k][m]
				}
			}
			if most == 0 {
				continue
			}
			e, err := p.estimated(m, k, cap)
			if err != nil {
				return err
			}
			q.Estimates = append(q.Estimates, planEstimate(e.rct, p.Models[m].Name, p.Kinds[k].Device, 0))
			if e.mega != nil {
				q.Estimates = append(q.Estimates, planEstimate(e.mega, p.Models[m].Name, p.Kinds[k].Device, e.from))
			}
		}
	}
	return nil
}

// Plan returns a plan of the layout that can be simulated, for some items.
func (p *Writer) Plan(l *Layout, items []int) (*formats.Plan, error) {
	q, err := p.Section(l, items)
	if err != nil {
		return nil, err
	}
	arrivals := p.Arrivals
	if arrivals == nil {
		arrivals = &formats.Arrivals{Process: "poisson"}
	}
	return &formats.Plan{
		Format: formats.FormatPlan, Kind: formats.PlanQueue, Seed: p.Seed, Pools: p.Pools, Deployment: p.Deployment(items), Section: q,
		Policy: p.Policy, Arrivals: arrivals,
	}, nil
}
