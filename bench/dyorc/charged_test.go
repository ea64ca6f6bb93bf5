package main

import (
	"context"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/testkit/workflows"
)

// A policy whose time passes, alone or in groups behind a balancer, answers every
// request, and its time is counted.
func TestChargedAndBalanced(t *testing.T) {
	opt, err := workflow.OptionsByName("dyorc")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []int{0, 8} {
		sc := sceneOf(-1, 6, 16, 40)
		sc.Charged, sc.Group = true, group
		fleet := func(devices int) *policy.Tables { return workflows.Fleet{Devices: devices, Gigabytes: 40}.Tables() }
		tab := fleet(16)
		pol, all := sc.served(tab, fleet, opt)
		var list []arrivals.Request
		for i := range 300 {
			list = append(list, arrivals.Request{ArrivedAt: time.Duration(i) * 160 * time.Millisecond, Model: int32(i % 3), SLO: time.Hour})
		}
		answered := 0
		_, err := sim.Run(context.Background(), sim.Config{Tables: tab, Policy: pol, Source: arrivals.Slice(list), Verify: true, NoReport: true,
			Control: &workflows.Control{Draw: workflows.NewApps(1).Draw}, MoveTime: workflows.Move(tab), OnCompleted: func(_, _ time.Duration) { answered++ }})
		if err != nil {
			t.Fatalf("groups of %d: %v", group, err)
		}
		if answered != len(list) || len(all) != map[int]int{0: 1, 8: 2}[group] || thought(all, len(list)) <= 0 {
			t.Errorf("groups of %d: %d answers, %d schedulers, %.1f us a request", group, answered, len(all), thought(all, len(list)))
		}
	}
}
