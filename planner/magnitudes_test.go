package planner_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/mutant"
)

// What a solve takes follows from what the devices carry: neither 65,537 devices nor rates
// of 1e15 take seconds. Rates above all devices are infeasible and have what is nearest.
func TestWorkFollowsDevices(t *testing.T) {
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	pool := func(p mutant.Problem) object { return p["cluster"].(object)["pools"].([]any)[0].(object) }
	devices := func(p mutant.Problem) { pool(p)["count"] = 65537.0 }
	for _, c := range []struct {
		name, kind string
		change     func(mutant.Problem)
		infeasible bool
		field      string // of bad input
	}{
		{"devices of applications", "flow", devices, false, ""},
		{"devices of workflows", "workflow", devices, false, ""},
		{"devices of queues", "queue", devices, false, ""},
		{"devices of a cascade", "gear", devices, false, "pools[0].count"},
		{"rate of a cascade", "gear", func(p mutant.Problem) {
			p["workload"].(object)["cascade"].(object)["qps"].(object)["max"] = 1e9
		}, true, ""},
		{"rate of queues", "queue", func(p mutant.Problem) {
			p["workload"].(object)["llm"].(object)["classes"].([]any)[0].(object)["rps"] = 1e9
		}, false, "llm.classes[0].rps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := json.Marshal(problems[c.kind])
			if err != nil {
				t.Fatal(err)
			}
			var p mutant.Problem
			if err := json.Unmarshal(text, &p); err != nil {
				t.Fatal(err)
			}
			c.change(p)
			in, err := decodeDocuments(p)
			if err != nil {
				t.Fatal(err)
			}
			opt := planner.Options{}
			if c.kind == "flow" || c.kind == "workflow" {
				opt.Set("margin", 0.4)
			}
			before := cputime.Used()
			_, err = planner.Solve(t.Context(), in, opt, highs.Solver{}, nil)
			if took := cputime.Used() - before; took > 10*time.Second {
				t.Errorf("took %v of CPU time", took)
			}
			inf, infeasible := errors.AsType[*planner.InfeasibleError](err)
			found := document.Findings(err)
			switch {
			case c.field != "":
				if len(found) != 1 || found[0].Path != c.field {
					t.Errorf("%v, expected a finding at %s", err, c.field)
				}
			case infeasible != c.infeasible || !infeasible && err != nil:
				t.Errorf("%v, expected infeasible %v", err, c.infeasible)
			case infeasible && inf.Nearest.LoadFactor == 0:
				t.Errorf("%v: nothing is nearest", err)
			}
		})
	}
}
