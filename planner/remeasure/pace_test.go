package remeasure_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/remeasure"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

const ms = time.Millisecond

// served returns a plan of two models, batches of up to 4 of the first and 1 of the second, and its tables.
func served(t *testing.T) (*formats.Plan, *policy.Tables) {
	t.Helper()
	plan := policytest.Single(1, false, policytest.Model{Batch: 4, First: 10 * ms, More: 5 * ms, SLO: 200 * ms, RPS: 90}, policytest.Model{Batch: 1, First: 20 * ms, SLO: 200 * ms, RPS: 40})
	tables, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	return plan, tables
}

func repeated(d time.Duration, n int) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }

// Runs are held against the planned time of their batch. Few runs count for nothing, and what is within two per cent
// is as planned.
func TestPaces(t *testing.T) {
	plan, tables := served(t)
	paces, err := remeasure.Paces(plan, tables, [][][]time.Duration{
		{repeated(12*ms, 30), repeated(99*ms, 19), nil, repeated(50*ms, 20)},
		{repeated(20200*time.Microsecond, 500)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"model0 on cpu-1: runs take, of the profiled time, 1.20 times at batch 1 (30 runs), 2.00 times at batch 4 (20 runs)",
		"model1 on cpu-1: runs take as long as profiled, within 2 %",
	}
	for i, text := range want {
		if paces[i].String() != text {
			t.Errorf("found %q, expected %q", paces[i].String(), text)
		}
	}
	if paces, err = remeasure.Paces(plan, tables, [][][]time.Duration{{repeated(99*ms, 19)}}); err != nil || paces[0].Differs() || !strings.Contains(paces[0].String(), "19 runs, of at least 20") {
		t.Errorf("%v, %v", &paces[0], err)
	}
}

// A mean between runs without and after a pause of the device is as planned.
func TestPauseIsNoDifference(t *testing.T) {
	plan, tables := served(t)
	tables.Stages[1].Mean, tables.Stages[1].IdlePenalty = []time.Duration{20 * ms}, 5*ms
	for measured, text := range map[time.Duration]string{
		24 * ms: "as long as profiled", 30 * ms: "1.20 times", 10 * ms: "0.50 times",
	} {
		paces, err := remeasure.Paces(plan, tables, [][][]time.Duration{nil, {repeated(measured, 40)}})
		if err != nil || !strings.Contains(paces[1].String(), text) {
			t.Errorf("%v: %v, %v, expected %q", measured, &paces[1], err, text)
		}
	}
}

// A record of another plan is refused.
func TestRecordOfAnotherPlan(t *testing.T) {
	plan, tables := served(t)
	for name, runs := range map[string][][][]time.Duration{
		"more stages":  {nil, nil, {repeated(ms, 30)}},
		"more batches": {nil, {nil, repeated(ms, 30)}},
	} {
		if _, err := remeasure.Paces(plan, tables, runs); err == nil || !strings.Contains(err.Error(), "the record is of another plan") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The profile takes the factors: a batch that was not served that of the nearest one, another kind of device none. The
// profile itself stays.
func TestProfileTakesPaces(t *testing.T) {
	measurement := func(device string, batch int, us document.Micros) formats.Measurement {
		whole := formats.Latency{WallUS: us * 1000, P99US: us * 2000}
		return formats.Measurement{Device: device, Share: 1, Batch: batch, WholeModel: &whole, Blocks: []formats.Latency{{WallUS: us * 1000}}}
	}
	profile := &formats.Profile{Models: []formats.ProfileModel{
		{Model: "m", Measurements: []formats.Measurement{measurement("L4", 1, 100), measurement("L4", 2, 200), measurement("L4", 16, 900), measurement("T4", 1, 300)}},
		{Model: "n", Measurements: []formats.Measurement{measurement("L4", 1, 100)}},
	}}
	paces := []remeasure.Pace{
		{Model: "m", Device: "L4", Share: 1, Batches: []remeasure.BatchPace{{Batch: 1, Runs: 20, Factor: 1.5}, {Batch: 8, Runs: 20, Factor: 2}}},
		{Model: "n", Device: "L4", Share: 1, Batches: []remeasure.BatchPace{{Batch: 1, Runs: 20, Factor: 1.01}}},
	}
	changed := remeasure.WithPaces(profile, paces)
	var found []document.Micros
	for _, m := range changed.Models {
		for _, x := range m.Measurements {
			if x.WholeModel.WallUS != x.Blocks[0].WallUS || x.WholeModel.P99US != 2*x.WholeModel.WallUS {
				t.Errorf("%s at batch %d: %+v", m.Model, x.Batch, x)
			}
			found = append(found, x.WholeModel.WallUS/1000)
		}
	}
	if want := []document.Micros{150, 300, 1800, 300, 100}; !slices.Equal(found, want) {
		t.Errorf("found %v, expected %v", found, want)
	}
	if profile.Models[0].Measurements[0].WholeModel.WallUS != 100_000 {
		t.Error("the profile itself was changed")
	}
	if remeasure.WithPaces(profile, paces[1:]) != nil {
		t.Error("a profile was changed that is as served")
	}
}
