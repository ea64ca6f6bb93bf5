package gear_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats/seeded"
	"inferplan/policy/conform"
	"inferplan/policy/gear"
	"inferplan/testkit/policytest"
)

// Whatever an interpreter may do to it within the contract, the policy answers or
// drops every request once, sends nothing to a device that is gone, and does the
// same when it is told the same again.
func TestAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, _ := compile(t, drawCascade(t))
		pol, err := gear.New(tab, gear.DefaultOptions(tab))
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := gear.New(tab, gear.DefaultOptions(tab))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		rec := conform.NewRecorder(pol, &log)
		foe := &policytest.Adversary{Tables: tab, Policy: rec, Levels: 10, Modes: int32(len(gear.TablesOf(tab).Gears)), Rand: seeded.New(rapid.Uint64().Draw(t, "seed"), "adversary")}
		if err := foe.Run(rapid.IntRange(10, 600).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := conform.Replay(&log, fresh); err != nil {
			t.Fatal("told the same again:", err)
		}
	})
}
