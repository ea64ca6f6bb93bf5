package workflows_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"inferplan/bench/dyorc/baselines"
	"inferplan/formats/seeded"
	"inferplan/policy/conform"
	"inferplan/policy/workflow"
	"inferplan/testkit/policytest"
	"inferplan/testkit/workflows"
)

// Whatever an interpreter may do within the contract, every policy answers every
// request that is not cancelled once, and does the same when it is told the same
// again.
func TestPoliciesAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(baselines.Names()).Draw(t, "policy")
		opt, err := baselines.Named(name, 1)
		if err != nil {
			t.Fatal(err)
		}
		fleet := workflows.Fleet{Devices: rapid.IntRange(1, 5).Draw(t, "devices"), Gigabytes: rapid.SampledFrom([]float64{17, 24, 40}).Draw(t, "memory"), PerNode: 2}
		if opt.StaticNetworks {
			fleet.Resident = [][]int32{{workflows.LLM, workflows.SD}}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		var log bytes.Buffer
		rec := conform.NewRecorder(workflow.New(fleet.Tables(), opt), &log)
		apps := workflows.NewApps(seed)
		foe := &policytest.Adversary{Tables: fleet.Tables(), Policy: rec, Control: &workflows.Control{Draw: apps.Draw}, Rand: seeded.New(seed, "adversary")}
		if err := foe.Run(rapid.IntRange(10, 400).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := conform.Replay(&log, workflow.New(fleet.Tables(), opt)); err != nil {
			t.Fatal("told the same again:", err)
		}
	})
}
