package made

import (
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Plan is a plan of queues for made-up servers: one model on each instance.
func Plan(model string, instances, sequences int) *formats.Plan {
	q := &formats.QueuePlan{
		Classes: []formats.QueueClass{{Served: formats.Served{Model: model, SLOUS: document.Micros(time.Minute), Percentile: "p99", Weight: 1, RPS: 100}, Figure: formats.FigureE2E}},
		Models: []formats.LLMProfile{{Model: model, WeightBytes: 1 << 20, KVBytesPerToken: 100, Instances: []formats.LLMInstance{
			{Device: "L4", TensorParallel: 1, Iteration: formats.Iteration{BaseNS: 1e6, SequenceNS: 1e3}, KVTokens: 1 << 16, KVSource: "measured", Loads: &formats.ModelLoads{ColdUS: 20_000, WarmUS: 20_000}}}}},
		Estimates: []formats.QueueEstimate{{Model: model, Device: "L4", PromptNS: 1e4, OutputNS: 1e6 / float64(sequences), PrefillNS: 1e6, DecodeNS: 1e6, Batch: float64(sequences), PromptMean: 20, OutputMean: 30, OutputSD: 5}},
	}
	for i := range instances {
		q.Instances = append(q.Instances, formats.QueueInstance{Device: "L4", FirstDevice: i, TensorParallel: 1, Model: model, Models: []string{model}, Sequences: []int{sequences}, TokenBudget: 512})
	}
	p := &formats.Plan{Kind: formats.PlanQueue, Section: q, Format: formats.FormatPlan, Algorithm: "search", StoppedBy: "work", Objective: formats.Objective{Name: "goodput", Value: 1},
		Policy: formats.PolicySpec{Name: "vqueue", Params: map[string]float64{"every_s": 0.05}}, Pools: []formats.Pool{{Device: "L4", Count: instances, MaxShares: 1}},
		Deployment: []formats.Deployed{{Model: model, NumBlocks: 1, Pipelines: []formats.Pipeline{}}}, Inputs: []formats.Input{}}
	p.Tool.Version = "0"
	return p
}
