package documents

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
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
