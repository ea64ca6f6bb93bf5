package sizing

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"inferplan/bench/qlm/fleet"
	"inferplan/bench/qlm/instance"
	"inferplan/formats/seeded"
	"inferplan/sim/llm"
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
	d, c := data(t), &Cases[1]
	floor, err := Floor(d, c)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, k := range Competitors {
		if !k.Structures.SeparateModels {
			continue
		}
		x, err := Count(t.Context(), d, c, &k)
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

// TestFloorBelowEveryFleet: a fleet that leaves so many requests late has at least as
// many GPUs as the bound says for so many late ones, under any policy.
func TestFloorBelowEveryFleet(t *testing.T) {
	d, tight, draws := data(t), 0.0, 24
	if os.Getenv("INFERPLAN_LONG") != "" {
		draws = 1000
	}
	names := []string{"QLM", "EDF", "SHEPHERD-like", "partition", "gateway-like", "the paper's readings"}
	rng := seeded.New(1, "floor")
	for range draws {
		w := fleet.Workloads[rng.IntN(2)]
		if tail := 0.9 * rng.Float64(); len(w.Models) > 1 {
			w = w.WithTail(tail)
		}
		x := 0.05 + 0.9*rng.Float64()
		w.Shares = []float64{x, (1 - x) / 2, (1 - x) / 2}
		from := rng.IntN(15000)
		c := &fleet.Case{Workload: &w, Policy: fleet.Named(names[rng.IntN(len(names))]), From: from, To: from + 40 + rng.IntN(260), RPS: 0.5 + 20*rng.Float64(), Instances: 1 + rng.IntN(4), Seed: 1}
		out, err := d.Measure(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		list, late := served(t, d, c, out)
		n := least(list, late)
		if n > c.Instances {
			t.Errorf("%s: the bound is %d GPUs with %v late, %d had no more", c.Key(), n, late, c.Instances)
		}
		tight = max(tight, float64(n)/float64(c.Instances)*float64(min(c.Instances-1, 1)))
	}
	if tight < 0.5 {
		t.Errorf("the bound is never above %.2f of a fleet of several: it says nothing", tight)
	}
}

// served is the requests of a run with their work, and how many were late.
func served(t *testing.T, d *fleet.Data, c *fleet.Case, out *fleet.Outcome) (list []due, late []int) {
	requests, err := c.Requests(d)
	if err != nil {
		t.Fatal(err)
	}
	classes := len(fleet.Classes)
	count := make([]float64, classes)
	for n, of := range c.Workload.Models {
		m := instance.Mistral7B
		if of%2 == 1 {
			m = instance.Vicuna13B
		}
		m.MaxSequences = 64
		var mine []due
		var lengths []llm.Request
		for _, r := range requests {
			if k := int(r.Model) % classes; int(r.Model)/classes == n {
				count[k]++
				mine = append(mine, due{span{From: r.ArrivedAt, To: r.ArrivedAt + fleet.Classes[k], Iterations: r.OutputTokens}, 0, min(k, 1), 0})
				lengths = append(lengths, llm.Request{Prompt: r.PromptTokens, Output: r.OutputTokens})
			}
		}
		weigh(&m, mine, lengths)
		list = append(list, mine...)
	}
	late = make([]int, 2)
	for k, share := range out.Class {
		late[min(k, 1)] += int(math.Round(count[k] * (1 - share)))
	}
	return list, late
}
