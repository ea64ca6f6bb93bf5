package sizing

import (
	"context"
	"os"
	"testing"

	"inferplan/bench/qlm/fleet"
)

// data reads the traces.
func data(t *testing.T) *fleet.Data {
	t.Helper()
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = "../../../../shared/data"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no measurements and traces: %v", err)
	}
	d, err := fleet.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestPartition: baselines hold with what they count, and no count is below the
// bound. A gateway's bands need no more than one order for all.
func TestPartition(t *testing.T) {
	d, c := data(t), &Cases[0]
	floor, err := Floor(d, c)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, k := range Competitors {
		if !k.Structures.Alone {
			continue
		}
		x, err := Count(context.Background(), d, c, &k)
		if err != nil {
			t.Fatal(err)
		}
		if counts[k.Name] = x.GPUs; x.GPUs < len(c.Popularity) || x.GPUs < floor || x.Attained[0] < Share || x.Attained[1] < Share {
			t.Errorf("%s: %+v, the bound is %d", k.Name, x, floor)
		}
	}
	if len(counts) != 3 || counts["partition, gateway-like"] > counts["partition, FCFS"] {
		t.Errorf("counts %v", counts)
	}
}
