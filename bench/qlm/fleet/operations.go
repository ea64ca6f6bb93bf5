package fleet

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// Operation is what operations cost for a model on a kind of instance.
type Operation struct {
	Name            string
	StateBytes      float64
	Swap, Recompute time.Duration // of a request's state
	Warm, Cold      time.Duration // of the weights
	States, Models  vqueue.Memory // that the operations may take
}

// halfWay is the tokens of a request in the middle of its answer.
const halfWay = 1260

// Operations are those of all pairs that fit.
func Operations() []Operation {
	var out []Operation
	for f, family := range [families]string{"Mistral-7B", "Vicuna-13B", "Llama-2-70B"} {
		for k, m := range hosted[f] {
			if m == nil {
				continue
			}
			devices := 1.0
			if k == fourA100 {
				devices = 4
			}
			x := Operation{Name: family + ", " + kindNames[k], StateBytes: float64(halfWay * m.KVBytes)}
			x.Swap = time.Duration((1.3 * x.StateBytes) / (fromHost * devices) * 1e9)
			x.Recompute = m.Iteration.Prefill(halfWay, budget)
			x.Warm, x.Cold = time.Duration(weights[f]/fromHost/devices*1e9), time.Duration(weights[f]/fromStorage/devices*1e9)
			server := &policy.Server{Warm: 1 << 62, Costs: []policy.ServerCost{{KV: m.KV, KVBytes: m.KVBytes}, {KV: m.KV, KVBytes: m.KVBytes}}}
			t := &policy.Tables{Networks: []policy.Network{{Bytes: int64(weights[f])}, {Bytes: int64(weights[f])}}, Devices: []policy.Device{{Instance: 0}}, Instances: []policy.Instance{{Server: server}}}
			memory := vqueue.Takes(t, 0)
			x.States, x.Models = memory[vqueue.StateSwap], memory[vqueue.WarmStart]
			out = append(out, x)
		}
	}
	return out
}
