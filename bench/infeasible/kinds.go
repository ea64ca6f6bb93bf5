package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// flow draws a problem of applications.
func flow(r *rand.Rand) *instance {
	p := &formats.Profile{Format: formats.FormatProfile}
	c := &formats.Cluster{Format: formats.FormatCluster}
	var kinds []string
	for k := range 1 + r.IntN(2) {
		kind := []string{"L4", "T4"}[k]
		kinds = append(kinds, kind)
		c.Pools = append(c.Pools, formats.Pool{Device: kind, Count: 3 + r.IntN(8), Memory: 1 << 30, USDPerHour: between(r, 0.3, 3), Watts: between(r, 50, 400)})
		p.Devices = append(p.Devices, formats.ProfileDevice{Device: kind})
	}
	var apps formats.Applications
	for a := range 1 + r.IntN(2) {
		app := formats.Application{Name: fmt.Sprint("a", a), SLO: document.SLO{Duration: time.Duration(100+r.IntN(300)) * time.Millisecond}, RPS: between(r, 10, 100), Weight: 1}
		for m := range 1 + r.IntN(3) {
			name := fmt.Sprintf("m%d%d", a, m)
			p.Models = append(p.Models, measured(r, name, kinds, 1, int64(between(r, 1e7, 2e8))))
			app.Modules = append(app.Modules, formats.Module{Name: name})
		}
		apps = append(apps, app)
	}
	x := &instance{in: planner.Inputs{Profile: p, Cluster: c, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: apps}}}
	objective := one(r, "throughput", "cost", "power", "gpus")
	x.opt.Set("objective", objective)
	ways := []string{"slo", "devices", "rate", "rate", "slo and rate", "unknown device"}
	if objective == "throughput" {
		ways = []string{"slo", "devices"}
	}
	way := one(r, ways...)
	x.name = "flow " + objective + ", " + way
	if strings.Contains(way, "slo") {
		apps[r.IntN(len(apps))].SLO.Duration = time.Duration(between(r, 500, 8000)) * time.Microsecond
	}
	if strings.Contains(way, "rate") {
		for i := range apps {
			apps[i].RPS = between(r, 500, 20000)
		}
	}
	switch way {
	case "devices":
		for k := range c.Pools {
			c.Pools[k].Count = 1
		}
	case "unknown device":
		c.Pools[0].Device, x.bad = "H9", "H9"
	}
	return x
}

// gear draws a problem of a cascade.
func gear(r *rand.Rand) *instance {
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "T4"}}}
	c := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "T4", Count: 1 + r.IntN(4)}}}
	const samples = 1500
	rec := formats.Records{Samples: samples, PlanningSamples: samples}
	family := []string{"small", "middle", "large"}
	for k, name := range family {
		m := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all", WeightBytes: 1000}}}
		each := float64(1+k*k*4) * between(r, 0.1, 0.3)
		for _, batch := range batches {
			m.Measurements = append(m.Measurements, formats.Measurement{
				Device: "T4", Share: 1, Batch: batch, Blocks: []formats.Latency{{WallUS: micros(0.2 + each*float64(batch))}},
			})
		}
		p.Models = append(p.Models, m)
		right := formats.ModelRecords{Model: name}
		var correct strings.Builder
		for range samples {
			certainty, is := r.Float64(), byte('0')
			if r.Float64() < 0.7+0.1*float64(k) {
				certainty, is = max(certainty, r.Float64()), '1'
			}
			right.Certainty = append(right.Certainty, certainty)
			correct.WriteByte(is)
		}
		right.Correct = correct.String()
		rec.Models = append(rec.Models, right)
	}
	p.Records = []formats.Records{rec}
	d := &formats.Cascade{
		Family: family, Grid: 4, SLO: formats.CascadeSLO{Latency: document.SLO{Duration: 100 * time.Millisecond}, Percentile: "p95"},
		QPS: formats.CascadeQPS{Max: 500, Ranges: 3, Distribution: "zipf"},
	}
	way := one(r, "slo", "rate", "unknown device")
	x := &instance{name: "gear, " + way, in: planner.Inputs{Profile: p, Cluster: c, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: d}}}
	switch way {
	case "slo":
		d.SLO.Latency.Duration = time.Duration(between(r, 100, 300)) * time.Microsecond
	case "rate":
		d.QPS.Max = between(r, 1e4, 1e5)
	default:
		c.Pools[0].Device, x.bad = "H9", "H9"
	}
	return x
}

// queue draws a problem of a language model.
func queue(r *rand.Rand) *instance {
	p := &formats.Profile{
		Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "A100", MemoryBytes: 80 << 30}},
		LLMs: []formats.LLMProfile{{
			Model: "m7", WeightBytes: 14_500_000_000, KVBytesPerToken: 131072, ContextTokens: 32768,
			Instances: []formats.LLMInstance{{
				Device: "A100", TensorParallel: 1, KVTokens: 424000, KVSource: "computed",
				Iteration: formats.Iteration{BaseNS: 13.35e6 * between(r, 0.7, 1.4), SequenceNS: 87000, ContextNS: 183, PromptNS: 64000, HingeTokens: 128, AttentionNS: 2},
			}},
		}},
	}
	c := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "A100", Count: 1 + r.IntN(2), USDPerHour: 3}}}
	class := formats.LLMClass{
		Class: "chat", SLO: document.SLO{Duration: 20 * time.Second}, RPS: 1,
		Prompt: &formats.Lengths{Distribution: "lognormal", Mean: 600, SD: 500, Max: 4000}, Output: &formats.Lengths{Distribution: "normal", Mean: 120, SD: 40, Max: 1000},
	}
	way := one(r, "slo", "rate", "unknown device")
	x := &instance{name: "queue, " + way}
	x.opt.Set("objective", "gpus")
	switch way {
	case "slo":
		class.SLO.Duration = time.Duration(between(r, 300, 3000)) * time.Millisecond
	case "rate":
		class.RPS = between(r, 100, 1000)
	default:
		c.Pools[0].Device, x.bad = "H9", "H9"
	}
	w := &formats.Workload{Format: formats.FormatWorkload, Section: &formats.LLM{Models: []string{"m7"}, Classes: []formats.LLMClass{class}}, Arrivals: &formats.Arrivals{Process: "poisson"}}
	x.in = planner.Inputs{Profile: p, Cluster: c, Workload: w}
	return x
}
