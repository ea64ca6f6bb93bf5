package planner_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/mutant"
)

// manyRequests returns a problem of two models of 5 to 8.5 ms, with texts of its documents replaced.
func manyRequests(t *testing.T, replace ...string) mutant.Problem {
	t.Helper()
	model := func(name string) string {
		text := fmt.Sprintf(`{"model": %q, "inputs": [{"name": "x", "dtype": "FP32", "shape": [-1, 4]}], "outputs": [{"name": "y", "dtype": "FP32", "shape": [-1, 2]}], "blocks": [{"name": "b"}], "measurements": [`, name)
		for i, us := range []int{5000, 5500, 6500, 8500} {
			text += fmt.Sprintf(`{"device": "L4", "share": 1, "batch": %d, "whole": {"wall_us": %d}, "blocks": [{"wall_us": %d}]},`, 1<<i, us, us)
		}
		return strings.TrimSuffix(text, ",") + `]}`
	}
	text := `{"profile": {"format": "inferplan.profile/v1", "devices": [{"device": "L4"}], "models": [` + model("m") + "," + model("words") + `]},
		"cluster": {"format": "inferplan.cluster/v1", "pools": [{"device": "L4", "count": 2}]},
		"workload": {"format": "inferplan.workload/v1", "models": [{"model": "m", "slo": "800ms", "weight": 1}, {"model": "words", "slo": "800ms", "weight": 1}], "arrivals": {"process": "poisson"}}}`
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("no %q in the problem", replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	var p mutant.Problem
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Plans for so many requests per second that their tests would take minutes are not tested, and say
// so. Others are.
func TestManyRequestsPerSecond(t *testing.T) {
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	flow := problems["flow"]
	flow["cluster"].(map[string]any)["pools"].([]any)[0].(map[string]any)["count"] = 60000.0
	const memory = `"count": 25000, "max_shares": 4, "per_node": 1, "nic_gbps": 6, "memory": "24GiB", "usd_per_hour": 1.42, "watts": 72`
	for name, c := range map[string]struct {
		problem mutant.Problem
		tested  bool
	}{
		"2 devices":       {manyRequests(t), true},
		"100 devices":     {manyRequests(t, `"count": 2`, `"count": 100`), true},
		"2000 devices":    {manyRequests(t, `"count": 2`, `"count": 2000`), false},
		"25000 devices":   {manyRequests(t, `"count": 2`, memory), false},
		"a run of 2 us":   {manyRequests(t, `{"wall_us": 6500}`, `{"wall_us": 2}`), false},
		"a run of 1 us":   {manyRequests(t, `{"wall_us": 5000}`, `{"wall_us": 1}`, `[{"wall_us": 8500}]`, `[{"wall_us": 6500000000000}]`), false},
		"a batch of 8000": {manyRequests(t, `"batch": 8,`, `"batch": 8000,`), false},
		"an application":  {flow, false},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := decodeDocuments(c.problem)
			if err != nil {
				t.Fatal(err)
			}
			opt := planner.Options{}
			opt.Set("margin", planner.Auto)
			if name == "an application" {
				opt.Set("objective", "throughput")
			}
			res, err := planner.Solve(t.Context(), in, opt, highs.Solver{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Contains(strings.Join(res.Plan.Assumptions, "\n"), "rates are not confirmed by simulation: ")
			if certified := res.Plan.Certificate != nil; certified != c.tested || said == c.tested {
				t.Errorf("certified %v, expected %v; assumptions %q", certified, c.tested, res.Plan.Assumptions)
			}
		})
	}
}
