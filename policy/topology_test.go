package policy_test

import (
	"strings"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/testkit/policytest"
)

// On the network of stages, senders share uplinks in groups of the larger node's
// size, receivers have downlinks of their own, and nothing is within a node.
func TestTopologyStages(t *testing.T) {
	plan := policytest.Pooled{High: 5, Low: 6, PerNode: 2, Batch: 1, HighTime: time.Millisecond, LowTime: time.Millisecond, Bytes: 1 << 20, SLO: time.Second}.Plan()
	plan.Pools[1].PerNode = 4
	tables, err := policy.CompileOn(plan, policy.TopologyStages)
	if err != nil {
		t.Fatal(err)
	}
	ups, downs := map[int32]int{}, map[int32]int{}
	nodes := map[int32]bool{}
	for _, d := range tables.DevicesOf(0) {
		ups[tables.Devices[d].Uplink]++
		nodes[tables.Devices[d].Node] = true
		if tables.Devices[d].Downlink >= 0 {
			t.Errorf("device %d of the first stage has a downlink", d)
		}
	}
	for _, d := range tables.DevicesOf(1) {
		downs[tables.Devices[d].Downlink]++
		nodes[tables.Devices[d].Node] = true
		if tables.Devices[d].Uplink >= 0 {
			t.Errorf("device %d of the last stage has an uplink", d)
		}
	}
	if len(ups) != 2 || len(downs) != 6 || len(nodes) != 11 {
		t.Errorf("5 senders with %d uplinks, 6 receivers with %d downlinks, %d nodes; want 2, 6 and 11", len(ups), len(downs), len(nodes))
	}
	for l, link := range tables.Links {
		if _, up := ups[int32(l)]; up != link.IsUplink {
			t.Errorf("link %d: up is %v", l, link.IsUplink)
		}
	}
}

func TestNetworkErrors(t *testing.T) {
	plan := policytest.Hundred().Plan()
	if _, err := policy.CompileOn(plan, "rings"); err == nil || !strings.Contains(err.Error(), `network "rings", expected one of [nodes stages]`) {
		t.Errorf("got %v", err)
	}
	shared := policytest.Single(2, true, policytest.Model{Batch: 1, First: time.Millisecond, SLO: time.Second, RPS: 1})
	shared.Pools[0].NICGbps = 10
	if _, err := policy.CompileOn(shared, policy.TopologyStages); err == nil || !strings.Contains(err.Error(), "pools[0].sharing") {
		t.Errorf("got %v", err)
	}
}
