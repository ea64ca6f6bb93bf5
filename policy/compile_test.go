package policy_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/testkit/policytest"
)

// A plan with shares, several devices behind a NIC, and a pool on one host.
func mixed() *formats.Plan {
	us := func(v ...int) []document.Micros {
		out := make([]document.Micros, len(v))
		for i := range v {
			out[i] = document.Micros(time.Duration(v[i]) * time.Microsecond)
		}
		return out
	}
	return &formats.Plan{
		Kind: formats.PlanPool,
		Pools: []formats.Pool{
			{Device: "L4", Count: 4, MaxShares: 4, PerNode: 2, NICGbps: 8, NICEfficiency: 0.5},
			{Device: "P4", Count: 3, PerNode: 1, NICGbps: 6},
		},
		Deployment: []formats.Deployed{{
			Model: "m",
			Pipelines: []formats.Pipeline{{Batch: 2, RPS: 100, Stages: []formats.Stage{
				{Blocks: [2]int{0, 3}, Device: "L4", Share: 2, Replicas: 3, InferUS: us(100, 150),
					Placement: []formats.Placement{{FirstDevice: 1, PerDevice: 2, Replicas: 3}}, Cut: &formats.Cut{DType: "FP16", Bytes: 1000}},
				{Blocks: [2]int{3, 10}, Device: "P4", Share: 1, Replicas: 2, InferUS: us(400, 700),
					Placement: []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 1}, {FirstDevice: 2, PerDevice: 1, Replicas: 1}}},
			}}},
		}},
		Section: &formats.PoolPlan{Models: []formats.Served{{Model: "m", SLOUS: document.Micros(time.Second), Percentile: "p95", RPS: 100}}},
	}
}

func TestCompileMakesTablesOfAMixedPlan(t *testing.T) {
	got, err := policy.Compile(mixed())
	if err != nil {
		t.Fatal(err)
	}
	us := time.Microsecond
	want := &policy.Tables{
		Kinds: []string{"L4", "P4"}, KindCounts: []int32{4, 3},
		Models:    []policy.Model{{Name: "m", SLO: time.Second, Percentile: 0.95, RPS: 100, NumPipelines: 1}},
		Pipelines: []policy.Pipeline{{Batch: 2, NumStages: 2, RPS: 100}},
		Stages: []policy.Stage{
			{NumDevices: 3, LastBlock: 3, Infer: []time.Duration{100 * us, 150 * us}},
			// 8000 bits at the slower end, 8 * 0.5 Gbps: 2 us for each sample.
			{Hop: 1, FirstDevice: 3, NumDevices: 2, FirstBlock: 3, LastBlock: 10, Infer: []time.Duration{400 * us, 700 * us},
				Xfer: []time.Duration{2 * us, 4 * us}, CutBytes: 1000, FP16In: true},
		},
		StageDevices: []int32{0, 1, 2, 3, 4},
		Services:     []policy.Service{{Name: "m", NumPipelines: 1}},
		Networks:     []policy.Network{{Name: "m", BaseNetwork: -1}},
		Resident:     [][]int32{{0}, {0}, {0}, {0}, {0}},
		// L4 device 1 is on node 0 of its pool, device 2 on node 1.
		Devices: []policy.Device{
			{Share: 2, GPU: 1, Slot: 0, Node: 0, Uplink: 0, Downlink: 1, Instance: -1},
			{Share: 2, GPU: 1, Slot: 1, Node: 0, Uplink: 0, Downlink: 1, Instance: -1},
			{Share: 2, GPU: 2, Slot: 0, Node: 1, Uplink: 2, Downlink: 3, Instance: -1},
			{Kind: 1, Share: 1, GPU: 0, Node: 2, Uplink: 4, Downlink: 5, Instance: -1},
			{Kind: 1, Share: 1, GPU: 2, Node: 3, Uplink: 6, Downlink: 7, Instance: -1},
		},
		Links: []policy.Link{
			{Node: 0, IsUplink: true, Gbps: 4}, {Node: 0, Gbps: 4}, {Node: 1, IsUplink: true, Gbps: 4}, {Node: 1, Gbps: 4},
			{Kind: 1, Node: 0, IsUplink: true, Gbps: 6}, {Kind: 1, Node: 0, Gbps: 6}, {Kind: 1, Node: 2, IsUplink: true, Gbps: 6}, {Kind: 1, Node: 2, Gbps: 6},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

// The plan's own transfer times are taken where it has them; zeros are one host.
func TestCompileTransferTimes(t *testing.T) {
	for _, c := range []struct {
		given []document.Micros
		want  []time.Duration
	}{
		{[]document.Micros{5000, 9000}, []time.Duration{5000, 9000}},
		{[]document.Micros{0, 0}, nil},
	} {
		plan := mixed()
		plan.Deployment[0].Pipelines[0].Stages[0].Cut.TransferUS = c.given
		got, err := policy.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got.Stages[1].Xfer); diff != "" {
			t.Errorf("transfer_us %v (-want +got):\n%s", c.given, diff)
		}
	}
}

func TestTransferTime(t *testing.T) {
	// 1 MiB at 6 Gbps: 8388608 / 6000 us = 1398.1, rounded.
	if got := policy.TransferTime(1<<20, 6); got != 1398*time.Microsecond {
		t.Errorf("1 MiB at 6 Gbps: %v, want 1398us", got)
	}
	if got := policy.TransferTime(1<<20, 0); got != 0 {
		t.Errorf("without a NIC: %v, want none", got)
	}
}

func TestCompileTimeShared(t *testing.T) {
	ms := time.Millisecond
	m := policytest.Model{Batch: 2, First: 3 * ms, More: ms, SLO: 50 * ms, RPS: 10}
	got, err := policy.Compile(policytest.Single(2, true, m, m, m))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Devices) != 2 {
		t.Errorf("%d devices, want the 2 physical ones", len(got.Devices))
	}
	for s := range got.Stages {
		if diff := cmp.Diff([]int32{0, 1}, got.DevicesOf(int32(s))); diff != "" {
			t.Errorf("stage %d (-want +got):\n%s", s, diff)
		}
	}
	if d := got.Devices[0]; d.Uplink != -1 || d.Downlink != -1 || d.Node != got.Devices[1].Node {
		t.Errorf("device 0 is %+v, want no links and the node of the other", d)
	}
}

// Within a node nothing crosses a NIC.
func TestTransferBetween(t *testing.T) {
	plan := mixed()
	// The second stage on the L4 pool too, on devices 3 and 1's node mate 0.
	plan.Deployment[0].Pipelines[0].Stages[1].Device = "L4"
	plan.Deployment[0].Pipelines[0].Stages[1].Placement = []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 1}, {FirstDevice: 3, PerDevice: 1, Replicas: 1}}
	tables, err := policy.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	// Devices by GPU: 0 (stage 1), 1 and 1 and 2 (stage 0), 3 (stage 1).
	for _, c := range []struct {
		from, to int32
		want     time.Duration
	}{{1, 0, 0}, {1, 4, 4 * time.Microsecond}, {3, 4, 0}, {3, 0, 4 * time.Microsecond}} {
		if got := tables.TransferBetween(1, 2, c.from, c.to); got != c.want {
			t.Errorf("from %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	type plan = formats.Plan
	stage := func(p *plan, i int) *formats.Stage { return &p.Deployment[0].Pipelines[0].Stages[i] }
	for _, c := range []struct {
		name   string
		change func(*plan)
		path   string
	}{
		{"no models", func(p *plan) { p.Deployment = nil }, "deployment"},
		{"pool twice", func(p *plan) { p.Pools = append(p.Pools, p.Pools[0]) }, "pools[2].device"},
		{"negative rate", func(p *plan) { p.Pools[1].NICGbps = -1 }, "pools[1].nic_gbps"},
		{"no slo", func(p *plan) { formats.PoolOf(p).Models[0].SLOUS = 0 }, "deployment[0]"},
		{"percentile", func(p *plan) { formats.PoolOf(p).Models[0].Percentile = "99" }, "deployment[0]"},
		{"batch", func(p *plan) { p.Deployment[0].Pipelines[0].Batch = 0 }, "deployment[0].pipelines[0].batch"},
		{"no stages", func(p *plan) { p.Deployment[0].Pipelines[0].Stages = nil }, "deployment[0].pipelines[0].stages"},
		{"unknown device", func(p *plan) { stage(p, 1).Device = "T4" }, "deployment[0].pipelines[0].stages[1].device"},
		{"short table", func(p *plan) { stage(p, 0).InferUS = stage(p, 0).InferUS[:1] }, "deployment[0].pipelines[0].stages[0].infer_us"},
		{"negative latency", func(p *plan) { stage(p, 0).InferUS[1] = -5 }, "deployment[0].pipelines[0].stages[0].infer_us[1]"},
		{"no cut", func(p *plan) { stage(p, 0).Cut = nil }, "deployment[0].pipelines[0].stages[0].cut"},
		{"short transfers", func(p *plan) { stage(p, 0).Cut.TransferUS = []document.Micros{1} }, "deployment[0].pipelines[0].stages[0].cut.transfer_us"},
		{"negative transfer", func(p *plan) { stage(p, 0).Cut.TransferUS = []document.Micros{1, -1} }, "deployment[0].pipelines[0].stages[0].cut.transfer_us[1]"},
		{"device that is not there", func(p *plan) { stage(p, 1).Placement[1].FirstDevice = 3 }, "deployment[0].pipelines[0].stages[1].placement[1]"},
		{"more slots than shares", func(p *plan) { stage(p, 0).Placement[0].PerDevice = 3 }, "deployment[0].pipelines[0].stages[0].placement[0]"},
		{"fewer placed than said", func(p *plan) { stage(p, 0).Replicas = 4 }, "deployment[0].pipelines[0].stages[0].placement"},
		{"nothing placed", func(p *plan) { stage(p, 0).Replicas, stage(p, 0).Placement = 0, nil }, "deployment[0].pipelines[0].stages[0].placement"},
		{"overlap", func(p *plan) { stage(p, 1).Placement[1].FirstDevice = 0 }, "pools[1]"},
		{"share of a time-shared pool", func(p *plan) { p.Pools[0].Sharing = formats.SharingTime }, "deployment[0].pipelines[0].stages[0].share"},
	} {
		p := mixed()
		c.change(p)
		_, err := policy.Compile(p)
		e, ok := errors.AsType[*document.Error](err)
		if !ok || e.Path != c.path || e.Found == "" || e.Expected == "" || !strings.Contains(err.Error(), "compiling the plan") {
			t.Errorf("%s: %v, want an error at %s with what was found and expected", c.name, err, c.path)
		}
	}
}

// What goes into a log comes out of it.
func TestCodecRoundTrip(t *testing.T) {
	ev := policy.Event{Kind: policy.TransferFinished, Hop: 2, Model: 3, Req: 4, Task: 14, Service: 15, Network: 16, Batch: 5, Device: 6, Tokens: 17, Limit: 18,
		Value: -7, Key: 19, ArrivedAt: 8, Deadline: 9, Start: 10, End: 11, List: []int32{-1, 70000}}
	now, got, err := policy.DecodeEvent(policy.AppendEvent(nil, 12, &ev))
	if err != nil || now != 12 || !reflect.DeepEqual(got, ev) {
		t.Errorf("event %+v at %v, %v, want %+v at 12", got, now, err, ev)
	}
	acts := policy.Actions{
		List: []policy.Action{
			{Kind: policy.Drop, Reason: policy.ReasonDeadline, Req: 3},
			{Kind: policy.Place, Task: 5, Device: 2},
			{Kind: policy.Load, Network: -1, Device: 2, Key: 1 << 40},
			{Kind: policy.Wake, Tag: 2, At: -1},
			{Kind: policy.Dispatch, Pipeline: 1, Model: 2, Batch: 9, Size: 2, HopCount: 1, TaskFirst: 0, HopFirst: 0},
		},
		Tasks: []int32{7, 8},
		Hops:  []policy.Hop{{Stage: 1, Device: 2, Uplink: -1, Downlink: 3, XferStart: 4, XferEnd: 5, Start: 6, End: 7}},
	}
	var back policy.Actions
	if err := policy.DecodeActions(policy.AppendActions(nil, &acts, 0), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(acts, back); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	b := policy.AppendActions(nil, &acts, 0)
	for n := range b {
		if err := policy.DecodeActions(b[:n], &back); err == nil {
			t.Errorf("the first %d of %d bytes decode", n, len(b))
		}
	}
}

func TestEveryDropReasonHasAName(t *testing.T) {
	for _, r := range policy.DropReasons() {
		if r.String() == "" || r.String() == "unknown" {
			t.Errorf("reason %d has no name", r)
		}
	}
	if policy.DropReason(200).String() != "unknown" {
		t.Error("an unknown reason has a name")
	}
}
