package deploy

import (
	"maps"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// hiddenSwapShare is the share of the time of moving KV to the host that iterations hide.
const hiddenSwapShare = 0.7

// resumeTimes returns how long a request of mean length that was evicted from an instance takes to resume, halfway through its answer,
// for a model on a kind of servers: by moving its KV (the state of its tokens on the device) to the host and back, or by computing it
// again. If the KV's size or the rate of moving is not known, swap is 0.
func (p *Estimators) resumeTimes(model, kind int) (swap, recompute time.Duration) {
	m := &p.problem.Models[model]
	instance := m.ByKind[kind]
	prompt, output, _ := lengthMoments(p.sampleRequests(model, sampleSize))
	tokens := prompt + output/2
	recompute = instance.Iteration.PrefillTime(int32(max(tokens, 1)), int32(tokenBudget(instance)))

	// bytes / (GB/s) are nanoseconds. The way out counts oneWay full. Iterations hide most of one way.
	if m.Profile.KVBytesPerToken > 0 && instance.SwapGBps > 0 {
		oneWay := tokens * float64(m.Profile.KVBytesPerToken) / instance.SwapGBps
		swap = time.Duration(oneWay * (1 + 1 - hiddenSwapShare))
	}
	return swap, recompute
}

// choosePreemption decides how an evicted request goes on, and sets it in the problem's policy as the parameter no_state_swap: its KV
// (the state that the model stores of its tokens) is computed again, unless moving it to the host and back is faster on at least half of
// the pairs of a model and a kind of servers.
func (p *Estimators) choosePreemption() {
	swaps, servers := 0, 0
	for m := range p.problem.Models {
		for k := range p.problem.Kinds {
			if p.problem.Models[m].ByKind[k] == nil {
				continue
			}
			servers++
			if swap, recompute := p.resumeTimes(m, k); swap > 0 && swap < recompute {
				swaps++
			}
		}
	}
	p.problem.Policy.Params = maps.Clone(p.problem.Policy.Params)
	if 2*swaps < servers {
		p.problem.Policy.Params["no_state_swap"] = 1
	}
}

// planOperations returns, for each model and device that plan q uses, the operations of QLM (section 5) there, as the plan states them:
// how an evicted request goes on, how long the model takes to load from the host's memory and from disk, and what servers as they come
// lack for that.
func (p *Estimators) planOperations(q *formats.QueuePlan) []formats.QueueOperation {
	var operations []formats.QueueOperation
	isListed := func(o *formats.QueueOperation) bool {
		return slices.ContainsFunc(operations, func(other formats.QueueOperation) bool { return other.Model == o.Model && other.Device == o.Device })
	}
	for m := range p.problem.Models {
		for k := range p.problem.Kinds {
			instance := p.problem.Models[m].ByKind[k]
			isDeployed := func(in formats.QueueInstance) bool {
				return in.Device == p.problem.Kinds[k].Device && in.TensorParallel == p.problem.Kinds[k].TP && slices.Contains(in.Models, p.problem.Models[m].Name)
			}

			// Only models and kinds that the plan has.
			if instance == nil || !slices.ContainsFunc(q.Instances, isDeployed) {
				continue
			}

			// How an evicted request goes on. Servers as they come cannot keep its KV.
			swap, recompute := p.resumeTimes(m, k)
			operation := formats.QueueOperation{
				Model: p.problem.Models[m].Name, Device: p.problem.Kinds[k].Device, Resume: formats.PreemptBySwap,
				SwapUS: document.Micros(swap), RecomputeUS: document.Micros(recompute), Lacks: []string{"state_swap"},
			}
			if p.problem.Policy.Params["no_state_swap"] == 1 {
				operation.Resume, operation.Lacks = formats.PreemptByRecompute, nil
			}

			// How the model is loaded: warm from the host's memory, or cold.
			if instance.Loads != nil {
				operation.WarmUS, operation.ColdUS = instance.Loads.WarmUS, instance.Loads.ColdUS
				if instance.Loads.WakeUS > 0 {
					operation.WarmUS = instance.Loads.WakeUS
				}
			}
			if instance.Loads == nil || instance.Loads.SleepUS == 0 && instance.Loads.WakeUS == 0 {
				operation.Lacks = append(operation.Lacks, "warm_start")
			}
			if !isListed(&operation) { // servers on another number of these devices may run the model, too
				operations = append(operations, operation)
			}
		}
	}
	return operations
}
