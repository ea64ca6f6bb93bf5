package policytest

import (
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// Pooled is a plan of one model whose pipelines run in two stages over two
// pools, as in PPipe: high devices of kind "high" feed low ones of kind "low"
// through NICs of 10 Gbps, one per node.
type Pooled struct {
	High, Low    int
	Batch        int
	PerNode      int           // devices of a node, in both pools; 0 stands for 1
	HighTime     time.Duration // per batch of one; a further sample costs 0.6 of it
	LowTime      time.Duration
	Bytes        int64 // of the cut
	SLO          time.Duration
	OneHost      bool // no NICs
	Params       map[string]float64
	LoadFraction float64 // planned rate as a fraction of the slower stage's; 0 stands for 1
}

// Plan builds the plan.
func (p Pooled) Plan() *formats.Plan {
	nic := 10.0
	if p.OneHost {
		nic = 0
	}
	perNode := max(1, p.PerNode)
	high, low := Times(p.HighTime, p.HighTime*6/10, p.Batch), Times(p.LowTime, p.LowTime*6/10, p.Batch)
	cut := formats.Cut{DType: "FP32", Bytes: p.Bytes, TransferUS: make([]document.Micros, p.Batch)}
	for b := range cut.TransferUS {
		cut.TransferUS[b] = document.Micros(time.Duration(b+1) * policy.TransferTime(p.Bytes, nic))
	}
	rate := func(n int, t []document.Micros) float64 {
		return float64(n*p.Batch) / t[p.Batch-1].D().Seconds()
	}
	rps := min(rate(p.High, high), rate(p.Low, low))
	if p.LoadFraction > 0 {
		rps *= p.LoadFraction
	}
	latency := high[p.Batch-1] + low[p.Batch-1] + cut.TransferUS[p.Batch-1]
	return &formats.Plan{
		Format: formats.FormatPlan, Kind: formats.PlanPool,
		Pools: []formats.Pool{
			{Device: "high", Count: p.High, MaxShares: 1, PerNode: perNode, NICGbps: nic},
			{Device: "low", Count: p.Low, MaxShares: 1, PerNode: perNode, NICGbps: nic},
		},
		Deployment: []formats.Deployed{{
			Model: "pooled", NumBlocks: 10,
			Pipelines: []formats.Pipeline{{
				Batch: p.Batch, RPS: rps, LatencyUS: latency,
				Stages: []formats.Stage{
					{Blocks: [2]int{0, 4}, Device: "high", Share: 1, Replicas: p.High, GPUs: float64(p.High), RPS: rate(p.High, high), InferUS: high,
						Placement: []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: p.High}}, Cut: &cut},
					{Blocks: [2]int{4, 10}, Device: "low", Share: 1, Replicas: p.Low, GPUs: float64(p.Low), RPS: rate(p.Low, low), InferUS: low,
						Placement: []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: p.Low}}},
				},
			}},
		}},
		Section: &formats.PoolPlan{Models: []formats.Served{{Model: "pooled", SLOUS: document.Micros(p.SLO), Percentile: "p99", Weight: 1, RPS: rps}}},
		Policy:  formats.PolicySpec{Name: "reserve", Params: p.Params},
	}
}

// Hundred is the plan of the benchmarks: 25 high and 75 low devices whose
// stages balance, batches of two.
func Hundred() Pooled {
	return Pooled{High: 25, Low: 75, Batch: 2, HighTime: 6 * time.Millisecond, LowTime: 18 * time.Millisecond,
		Bytes: 1 << 19, SLO: 100 * time.Millisecond}
}

// Model describes a single-stage model of Single.
type Model struct {
	Batch       int
	First, More time.Duration // times of the first sample of a batch and of each further
	SLO         time.Duration
	RPS         float64
}

// Single is a plan of models that each run whole; time-shared models all run
// on all devices, otherwise each has devices of its own.
func Single(devices int, timeShared bool, models ...Model) *formats.Plan {
	pool := formats.Pool{Device: "cpu-1", Count: devices, MaxShares: 1, Sharing: formats.SharingExclusive}
	if timeShared {
		pool.Sharing = formats.SharingTime
	} else {
		pool.Count = devices * len(models)
	}
	plan := &formats.Plan{Format: formats.FormatPlan, Kind: formats.PlanPool, Pools: []formats.Pool{pool}, Policy: formats.PolicySpec{Name: "reserve"}}
	promised := &formats.PoolPlan{}
	plan.Section = promised
	for i, m := range models {
		first := i * devices
		if timeShared {
			first = 0
		}
		times := Times(m.First, m.More, m.Batch)
		name := fmt.Sprintf("model%d", i)
		promised.Models = append(promised.Models, formats.Served{Model: name, SLOUS: document.Micros(m.SLO), Percentile: "p99", Weight: 1, RPS: m.RPS})
		plan.Deployment = append(plan.Deployment, formats.Deployed{
			Model: name, NumBlocks: 1,
			Pipelines: []formats.Pipeline{{Batch: m.Batch, RPS: m.RPS, LatencyUS: times[m.Batch-1], Stages: []formats.Stage{{
				Blocks: [2]int{0, 1}, Device: pool.Device, Share: 1, Replicas: devices, GPUs: float64(devices), RPS: m.RPS, InferUS: times,
				Placement: []formats.Placement{{FirstDevice: first, PerDevice: 1, Replicas: devices}},
			}}}},
		})
	}
	return plan
}
