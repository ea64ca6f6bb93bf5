package sizing

import (
	"os"
	"slices"
	"strings"
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

// TestPartition: baselines hold with what they count. A gateway's bands need no more than one order for all.
func TestPartition(t *testing.T) {
	d, c := data(t), &Cases[1]
	counts := map[string]int{}
	for _, k := range Competitors {
		if !k.Structures.SeparateModels {
			continue
		}
		x, err := Count(t.Context(), d, c, &k)
		if err != nil {
			t.Fatal(err)
		}
		if counts[k.Name] = x.GPUs; x.GPUs < len(c.Popularity) || x.Attained[0] < Share || x.Attained[1] < Share {
			t.Errorf("%s: %+v", k.Name, x)
		}
	}
	if len(counts) != 3 || counts["partition, gateway-like"] > counts["partition, FCFS"] {
		t.Errorf("counts %v", counts)
	}
}

// TestSplitByClass: one model at a high rate takes no more GPUs where each class has replicas of
// its own, which its requests alone go to, than where all replicas serve all.
func TestSplitByClass(t *testing.T) {
	d, c := data(t), &Cases[len(Cases)-1]
	count := func(name string) *Sized {
		k := Competitors[slices.IndexFunc(Competitors, func(k Competitor) bool { return k.Name == name })]
		x, err := Count(t.Context(), d, c, &k)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	one, split := count("partition, EDF"), count("split by class, EDF")
	if split.GPUs < 2 || split.GPUs > one.GPUs || min(split.Attained[0], split.Attained[1]) < Share || !strings.Contains(split.Fleet, "+") {
		t.Errorf("split by class %+v, one pool %+v", split, one)
	}
}
