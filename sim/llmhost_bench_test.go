package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/balance"
	"inferplan/sim"
)

// queueTables are the tables of a plan of so many instances of one model.
func queueTables(tb testing.TB, instances int) *policy.Tables {
	tb.Helper()
	it := formats.Iteration{BaseNS: 23.475e6, SequenceNS: .0607e6, ContextNS: 593, PromptNS: .1405e6, AttentionNS: 8.08}
	q := &formats.QueuePlan{
		Classes: []formats.QueueClass{{Served: formats.Served{Model: "a", SLOUS: document.Micros(time.Minute)}, Figure: formats.FigureE2E, PromptMean: 500, OutputMean: 200}},
		Models: []formats.LLMProfile{{Model: "a", WeightBytes: 26e9, KVBytesPerToken: 819200, Instances: []formats.LLMInstance{
			{Device: "A100", TensorParallel: 1, Iteration: it, KVTokens: 66144, KVSource: formats.KVMeasured, BlockTokens: 16, SwapGBps: 23.6, Loads: &formats.ModelLoads{WarmUS: 1e9, ColdUS: 7e9}}}}},
	}
	for d := range instances {
		q.Instances = append(q.Instances, formats.QueueInstance{Device: "A100", FirstDevice: d, TensorParallel: 1, Model: "a", Models: []string{"a"}, Sequences: []int{64}, TokenBudget: 2048})
	}
	t := &policy.Tables{Models: []policy.Model{{Name: "a", SLO: time.Minute}}, Kinds: []string{"A100"}, KindCounts: []int32{int32(instances)}}
	if err := t.AddInstances(q, []formats.Pool{{Device: "A100", Count: instances}}); err != nil {
		tb.Fatal(err)
	}
	return t
}

// BenchmarkServers: requests to language models per CPU-second, and what an event
// costs against a bare heap loop of as many.
func BenchmarkServers(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("instances-%d", n), func(b *testing.B) {
			tables := queueTables(b, n)
			const requests = 20000
			rng := seeded.New(1, "requests")
			list, at := make([]arrivals.Request, requests), 0.0
			for i := range list {
				at += rng.ExpFloat64() / (2.5 * float64(n))
				list[i] = arrivals.Request{ArrivedAt: time.Duration(at * 1e9), PromptTokens: 1 + rng.Int32N(1000), OutputTokens: 1 + rng.Int32N(400)}
			}
			events, spent := int64(0), time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				start := cputime.Used()
				res, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: balance.New(tables), Source: arrivals.Slice(list), NoReport: true})
				if err != nil {
					b.Fatal(err)
				}
				spent += cputime.Used() - start
				events += res.Events
			}
			each := float64(spent.Nanoseconds()) / float64(events)
			b.ReportMetric(requests*float64(b.N)/spent.Seconds(), "requests/cpu-s")
			b.ReportMetric(float64(events)/float64(b.N)/requests, "events/request")
			b.ReportMetric(each, "cpu-ns/event")
			b.ReportMetric(each/bareLoop(b, 1<<20), "x-bare-loop")
		})
	}
}
