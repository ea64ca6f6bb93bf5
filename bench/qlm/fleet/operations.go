package fleet

import (
	"math"
	"time"

	"inferplan/policy"
)

// Operation holds the costs of operations for a model on a kind of instance.
type Operation struct {
	Name            string
	StateBytes      float64
	Swap, Recompute time.Duration // of a request's state
	Warm, Cold      time.Duration // of the weights
	States, Models  int64         // bytes of the host's memory that they may take
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
			x := Operation{Name: family + ", " + kindNames[k], StateBytes: float64(halfWay * m.TokenBytes)}
			x.Swap = time.Duration((1.3 * x.StateBytes) / (fromHost * devices) * 1e9)
			x.Recompute = m.Iteration.PrefillTime(halfWay, budget)
			x.Warm, x.Cold = time.Duration(weights[f]/fromHost/devices*1e9), time.Duration(weights[f]/fromStorage/devices*1e9)
			server := &policy.Server{WarmBytes: 1 << 62, Costs: []policy.ServerCost{{KVTokens: m.KVTokens, KVTokenBytes: m.TokenBytes}, {KVTokens: m.KVTokens, KVTokenBytes: m.TokenBytes}}}
			t := &policy.Tables{Networks: []policy.Network{{Bytes: int64(weights[f])}, {Bytes: int64(weights[f])}}, Devices: []policy.Device{{Instance: 0}}, Instances: []policy.Instance{{Server: server}}}
			x.States, x.Models = states(server), models(t, server)
			out = append(out, x)
		}
	}
	return out
}

// states returns what state swaps take of the host's memory at most: the state of a whole batch, of the
// network with the largest. Evictions, pulling and balancing take none.
func states(s *policy.Server) int64 {
	most := int64(0)
	for i := range s.Costs {
		most = max(most, s.Costs[i].KVTokens*s.Costs[i].KVTokenBytes)
	}
	return most
}

// models returns what warm starts take of it at most: the weights of the networks that the instance may run,
// but for the smallest, which is loaded, as far as the host has room.
func models(t *policy.Tables, s *policy.Server) int64 {
	sum, least := int64(0), int64(math.MaxInt64)
	for n := range s.Costs {
		if bytes := t.Networks[n].Bytes; s.Costs[n].KVTokens > 0 {
			sum, least = sum+bytes, min(least, bytes)
		}
	}
	return min(max(sum-least, 0), s.WarmBytes)
}
