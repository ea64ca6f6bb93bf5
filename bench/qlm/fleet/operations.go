package fleet

import (
	"time"

	"inferplan/bench/qlm/instance"
)

// Operation holds the costs of operations for a model on a kind of instance.
type Operation struct {
	Name            string
	StateBytes      float64
	Swap, Recompute time.Duration // of a request's state
	Warm, Cold      time.Duration // of the weights
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
			x := Operation{Name: family + ", " + kindNames[k], StateBytes: float64(halfWay * m.TokenBytes), Recompute: m.Iteration.PrefillTime(halfWay, instance.Options.TokenBudget)}
			x.Swap = time.Duration((1.3 * x.StateBytes) / (fromHost * devices(k)) * 1e9)
			times := loads(f, k)
			x.Warm, x.Cold = times.WarmUS.D(), times.ColdUS.D()
			out = append(out, x)
		}
	}
	return out
}
