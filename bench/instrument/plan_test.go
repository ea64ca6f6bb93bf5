package instrument_test

import (
	"encoding/json"
	"testing"

	"inferplan/bench/drawn"
	"inferplan/bench/instrument"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// A plan that a kept value holds is whole when it is read again; none stays none.
func TestPlan(t *testing.T) {
	p := drawn.Pools(1)
	res, err := planner.Solve(t.Context(), p.Inputs, planner.Options{Values: map[string]any{"margin": 0.2}}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]instrument.Plan{{Plan: res.Plan}, {}})
	if err != nil {
		t.Fatal(err)
	}
	var read []instrument.Plan
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if changes := planner.Diff(res.Plan, read[0].Plan); !changes.Empty() || read[1].Plan != nil {
		t.Errorf("changes %v, of no plan %v", changes.Lines(), read[1].Plan)
	}
}
