package main

import (
	"fmt"

	"inferplan/bench/qlm/fleet"
	"inferplan/bench/table"
)

// operations shows the cost of each operation by model and kind of instance.
func (b *bench) operations(t *table.Table) error {
	t.Columns = []string{"model, instance", "state of a request, MB", "swap out and in, ms", "compute again, ms", "weights from host, s", "from storage, s", "host memory for states, GB", "for warm models, GB"}
	swapped, again := 0, 0
	for _, c := range fleet.Operations() {
		t.Add(c.Name, fmt.Sprintf("%.0f", c.StateBytes/1e6), fmt.Sprintf("%.0f", c.Swap.Seconds()*1e3), fmt.Sprintf("%.0f", c.Recompute.Seconds()*1e3),
			fmt.Sprintf("%.2f", c.Warm.Seconds()), fmt.Sprintf("%.2f", c.Cold.Seconds()), fmt.Sprintf("%.1f", float64(c.States)/1e9), fmt.Sprintf("%.1f", float64(c.Models)/1e9))
		if c.Swap < c.Recompute {
			swapped++
		} else {
			again++
		}
	}
	t.Note("A request of 1155 prompt and 105 answer tokens (Azure's conversations, half-way). 70 %% of swapping out is hidden by iterations.")
	f := claim("whether to swap the state or to compute it again depends on model and hardware", "QLM, figure 4", "both occur", float64(swapped), "of the pairs swap faster", fmt.Sprintf("%d compute faster", again), swapped > 0, again > 0)
	b.figures = append(b.figures, f)
	return nil
}
