package documents

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// DevicePrices returns, by pool, the price of one device for an objective that is minimised: USD per hour, watts, or 1 for
// the number of devices. It returns an error if the cluster has no such price of a pool, or if some model has no floor
// (least rate): without one the best plan serves nothing.
func (r *Resolved) DevicePrices() ([]float64, error) {
	for d := range r.Problem.Models {
		if r.Problem.Models[d].MinRPS <= 0 {
			return nil, r.Input.FieldError("workload", fmt.Sprintf("models[%d].min_rps", d), "no rate to carry",
				"one of every model with --objective "+r.Input.Values.Word("objective"), "--min-load 500 asks for 500 requests/s per weight of every model")
		}
	}
	prices := make([]float64, len(r.Pools))
	for k := range r.Pools {
		price, err := r.Input.DevicePrice(k)
		if err != nil {
			return nil, err
		}
		prices[k] = price
	}
	return prices, nil
}

// floorsFromMinLoad reports whether all floors (least rates of models) come from --min-load alone, and none
// from the workload.
func (r *Resolved) floorsFromMinLoad() bool {
	return !lists.Contains(len(r.models), func(d int) bool {
		return r.models[d].workload.MinRPS > r.Input.Values.Number("min-load")*r.models[d].weight
	})
}

// ExplainError completes a *kind.InfeasibleError of the search: it notes whether all floors (least rates of models) come
// from the option --min-load alone. If they do, it also states the nearest feasible load as a value of that option,
// rounded down. It returns other errors as they are.
func (r *Resolved) ExplainError(err error) error {
	infeasible, ok := errors.AsType[*kind.InfeasibleError](err)
	if !ok {
		return err
	}
	minLoad := r.Input.Values.Number("min-load")
	infeasible.OnlyMinLoad = minLoad > 0 && r.floorsFromMinLoad()
	if infeasible.OnlyMinLoad && infeasible.Nearest.LoadFactor > 0 {
		infeasible.Nearest.MinLoadRPS = kind.RoundDown(minLoad*infeasible.Nearest.LoadFactor, 6)
	}
	return infeasible
}

// Algorithms and objectives.
const (
	AlgorithmTemplate = "template"
	AlgorithmNP       = "np"
	AlgorithmDARTr    = "dart-r"

	ObjectiveThroughput = "throughput"
	ObjectiveCost       = "cost"  // least USD per hour of the devices used
	ObjectivePower      = "power" // least watts
	ObjectiveGPUs       = "gpus"  // fewest devices
)

// BoundScope says which plans a bound covers, as far as options leave some plans out. blocks is the number of
// blocks that models count as, 0 if it is not limited. The text ends a sentence that begins with "no plan". If
// the bound covers all plans, it is empty.
func BoundScope(values document.Values, blocks int, deployment []formats.Deployed, pools []formats.Pool) string {
	var phrases []string
	add := func(format string, args ...any) { phrases = append(phrases, fmt.Sprintf(format, args...)) }

	// Pipelines: whole models, pairs of devices, few stages.
	if algorithm := values.Word("algorithm"); algorithm == AlgorithmNP {
		add("of whole models")
	} else if algorithm == AlgorithmDARTr {
		add("of pairs of devices")
	} else {
		maxPartitions := values.WholeNumber("max-partitions")
		hasMoreBlocks := func(d formats.Deployed) bool { return d.NumBlocks > maxPartitions }
		if slices.ContainsFunc(deployment, hasMoreBlocks) { // else more stages are impossible
			add("of at most %d stages", maxPartitions)
		}
	}
	sharesNIC := func(p formats.Pool) bool { return p.NICGbps > 0 && min(p.Count, p.PerNode) > 1 }
	if values.Word("algorithm") == AlgorithmTemplate && values.WholeNumber("max-partitions") > 1 && !values.Flag("uneven-nic") && slices.ContainsFunc(pools, sharesNIC) {
		add("with even shares of network cards")
	}

	// Batches, blocks, margin and rounding.
	if n := values.WholeNumber("max-batch"); n > 0 {
		add("with batches up to %d", n)
	}
	if blocks > 0 {
		add("with %d blocks a model", blocks)
	}
	if values.Word("margin") != "auto" {
		add("with margin %.3g", values.Number("margin"))
		if values.Word("gpu-rounding") == "slot" {
			add("with whole devices for every stage")
		}
	}
	return strings.Join(phrases, ", ")
}
