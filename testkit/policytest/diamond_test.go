package policytest_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats/seeded"
	"inferplan/policy/conform"
	"inferplan/testkit/policytest"
)

// Whatever an interpreter may do to it within the contract, the policy that uses
// all of it answers or drops every request once, and does the same when it is
// told the same again.
func TestDiamondAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := policytest.DiamondTables()
		pol := policytest.NewDiamond(tab)
		var log bytes.Buffer
		rec := conform.NewRecorder(pol, &log)
		foe := &policytest.Adversary{Tables: tab, Policy: rec, Control: &policytest.DiamondControl{}, Rand: seeded.New(rapid.Uint64().Draw(t, "seed"), "adversary")}
		if err := foe.Run(rapid.IntRange(10, 600).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
		if n := pol.Open(); n > 0 {
			t.Fatalf("%d requests are still with the policy", n)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := conform.Replay(&log, policytest.NewDiamond(tab)); err != nil {
			t.Fatal("told the same again:", err)
		}
	})
}
