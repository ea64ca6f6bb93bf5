package policy_test

import (
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// What a plan says of instances is in the tables: devices, costs, server settings,
// load times, and which instances may run a model.
func TestAddInstances(t *testing.T) {
	at := func(device string, tp int, kv int64, base float64) formats.LLMInstance {
		return formats.LLMInstance{Device: device, TensorParallel: tp, Iteration: formats.Iteration{BaseNS: base, PromptNS: 1000}, KVTokens: kv, BlockTokens: 16, SwapGBps: 20,
			Loads: &formats.ModelLoads{ColdUS: 4e9, WarmUS: 6e8, WakeUS: 5e8, SleepUS: 1e8}}
	}
	q := &formats.QueuePlan{
		Models: []formats.LLMProfile{
			{Model: "a", WeightBytes: 14e9, KVBytesPerToken: 131072, Instances: []formats.LLMInstance{at("A", 1, 1000, 1e7), at("B", 2, 3000, 2e7)}},
			{Model: "b", WeightBytes: 26e9, Instances: []formats.LLMInstance{at("A", 1, 500, 3e7)}},
		},
		Classes: []formats.QueueClass{
			{Served: formats.Served{Model: "a", Class: "chat"}, Figure: formats.FigureTTFT, PromptMean: 100, OutputMean: 10}, {Served: formats.Served{Model: "b"}, Figure: formats.FigureE2E, Priority: 4},
		},
		Hosts: []formats.QueueHost{{Device: "A", MemoryBytes: 64e9}},
		Instances: []formats.QueueInstance{
			{Device: "A", FirstDevice: 3, TensorParallel: 1, Model: "b", Models: []string{"a", "b"}, Sequences: []int{64, 32}, TokenBudget: 2048, Scheduling: formats.SchedulePriority, Preemption: formats.PreemptBySwap},
			{Device: "B", FirstDevice: 2, TensorParallel: 2, Model: "a", Models: []string{"a"}, Sequences: []int{128}, TokenBudget: 512, NoPrefixCache: true},
		},
	}
	tab := &policy.Tables{Kinds: []string{"A", "B"}, KindCounts: []int32{4, 4}, Models: []policy.Model{{Name: "a", Class: "chat", SLO: time.Second}, {Name: "b", SLO: time.Second}}}
	if err := tab.AddInstances(q, []formats.Pool{{Device: "A", Count: 4, PerNode: 4}, {Device: "B", Count: 4, PerNode: 2}}); err != nil {
		t.Fatal(err)
	}
	one, two := tab.Instances[0], tab.Instances[1]
	if d := tab.Devices[1]; d.Kind != 1 || d.GPU != 2 || d.Node != 1 || d.Instance != 1 || tab.PhysicalDevices(1) != 2 || tab.PhysicalDevices(0) != 1 {
		t.Errorf("device %+v takes %v", d, tab.PhysicalDevices(1))
	}
	if s := one.Server; !s.ByPriority || !s.SwapKV || !s.PrefixCache || s.WarmBytes != 16e9 || s.SwapGBps != 20 || s.BlockTokens != 16 || s.Costs[0].MaxSequences != 64 || s.Costs[1].KVTokens != 500 || s.Costs[0].UnloadTime != 100*time.Millisecond {
		t.Errorf("server %+v", s)
	}
	if s := two.Server; s.ByPriority || s.SwapKV || s.PrefixCache || s.Costs[1].KVTokens != 0 || s.Costs[0].Iteration.BaseNS != 2e7 || two.TokenBudget != 512 || two.KVTokens != 3000 {
		t.Errorf("server %+v of %+v", s, two)
	}
	if n := tab.Networks[0]; n.Bytes != 14e9 || n.LoadTimes[0] != [2]time.Duration{500 * time.Millisecond, 4 * time.Second} || tab.Networks[1].LoadTimes[1] != [2]time.Duration{} {
		t.Errorf("networks %+v", tab.Networks)
	}
	if len(tab.Resident) != 2 || tab.Resident[0][0] != 1 || tab.Resident[1][0] != 0 {
		t.Errorf("resident %v", tab.Resident)
	}
	if a, b := tab.DevicesOf(0), tab.DevicesOf(1); len(a) != 2 || len(b) != 1 || b[0] != 0 {
		t.Errorf("a runs on %v, b on %v", a, b)
	}
	if m := tab.Models; m[0].SLOFigure != formats.FigureTTFT || m[1].Priority != 4 || tab.Stages[0].Infer[0] < 10*20*time.Millisecond {
		t.Errorf("models %+v, %v", m, tab.Stages[0].Infer)
	}
	// A server that does not sleep takes its time to unload.
	q.Models[0].Instances[0].Loads = &formats.ModelLoads{ColdUS: 2e8, UnloadUS: 6e7}
	if err := tab.AddInstances(q, []formats.Pool{{Device: "A", Count: 4, PerNode: 4}, {Device: "B", Count: 4, PerNode: 2}}); err != nil || tab.Instances[0].Server.Costs[0].UnloadTime != 60*time.Millisecond {
		t.Errorf("%+v, %v", tab.Instances[0].Server, err)
	}
}
