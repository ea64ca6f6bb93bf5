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

// resumeTimes returns how long a model on a kind takes to resume an evicted request of mean length: by
// moving its KV to the host and back, or by computing it again. If the rate of moving is not known, swap is
// 0.
func (p *Estimators) resumeTimes(model, kind int) (swap, recompute time.Duration) {
	m := &p.problem.Models[model]
	instance := m.ByKind[kind]
	prompt, output, _ := lengthMoments(p.sampleRequests(model, sampleSize))
	tokens := prompt + output/2
	recompute = instance.Iteration.PrefillTime(int32(max(tokens, 1)), int32(tokenBudget(instance)))
	if m.Profile.KVBytesPerToken > 0 && instance.SwapGBps > 0 {
		in := tokens * float64(m.Profile.KVBytesPerToken) / instance.SwapGBps
		swap = time.Duration(in * (1 + 1 - hiddenSwapShare))
	}
	return swap, recompute
}

// choosePreemption decides how an evicted request goes on: its KV (what the model keeps of its tokens) is
// computed again, unless moving it to the host and back is faster on at least half of the servers. It sets that
// in the policy.
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

// planOperations returns, for each model and device of a plan, how the operations of QLM (section 5) are done
// there: how an evicted request goes on, how long the model takes to load, and what the server cannot do.
func (p *Estimators) planOperations(q *formats.QueuePlan) []formats.QueueOperation {
	var operations []formats.QueueOperation
	for m := range p.problem.Models {
		for k := range p.problem.Kinds {
			instance := p.problem.Models[m].ByKind[k]
			isDeployed := func(in formats.QueueInstance) bool {
				return in.Device == p.problem.Kinds[k].Device && slices.Contains(in.Models, p.problem.Models[m].Name)
			}

			// Only models and kinds that the plan has.
			if instance == nil || !slices.ContainsFunc(q.Instances, isDeployed) {
				continue
			}

			// How an evicted request goes on. Servers as they come cannot keep its KV.
			swap, recompute := p.resumeTimes(m, k)
			o := formats.QueueOperation{
				Model: p.problem.Models[m].Name, Device: p.problem.Kinds[k].Device, Resume: formats.PreemptBySwap,
				SwapUS: document.Micros(swap), RecomputeUS: document.Micros(recompute), Lacks: []string{"state_swap"},
			}
			if p.problem.Policy.Params["no_state_swap"] == 1 {
				o.Resume, o.Lacks = formats.PreemptByRecompute, nil
			}

			// How the model is loaded: warm from the host's memory, or cold.
			if instance.Loads != nil {
				o.WarmUS, o.ColdUS = instance.Loads.WarmUS, instance.Loads.ColdUS
				if instance.Loads.WakeUS > 0 {
					o.WarmUS = instance.Loads.WakeUS
				}
			}
			if instance.Loads == nil || instance.Loads.SleepUS == 0 && instance.Loads.WakeUS == 0 {
				o.Lacks = append(o.Lacks, "warm_start")
			}
			operations = append(operations, o)
		}
	}
	return operations
}
