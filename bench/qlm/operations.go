package main

import (
	"fmt"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/qlm/fleet"
)

// operations shows the cost of each operation by model and kind of instance.
func operations(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"model, instance", "state of a request, MB", "swap out and in", "compute again", "weights from host", "from storage"}
	list := fleet.Operations()
	swapped := 0
	for _, c := range list {
		t.Add(c.Name, fmt.Sprintf("%.0f", c.StateBytes/1e6), c.Swap.Round(time.Millisecond), c.Recompute.Round(time.Millisecond), c.Warm.Round(10*time.Millisecond), c.Cold.Round(10*time.Millisecond))
		if c.Swap < c.Recompute {
			swapped++
		}
	}
	t.Note("A request of 1155 prompt and 105 answer tokens (Azure's conversations, half-way). 70 %% of swapping out is hidden by iterations.")
	r.Figure(claim("whether to swap the state or to compute it again depends on model and hardware", "QLM, figure 4", "both occur", float64(swapped), "of the pairs swap faster",
		fmt.Sprintf("%d compute faster", len(list)-swapped), swapped > 0, swapped < len(list)))
	return nil
}
