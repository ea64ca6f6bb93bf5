package drawn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// Cascades draws a family of two to four models on 1 to 16 devices of one kind or two, with labelled samples. Sixth seeds ask
// for the fewest devices at an accuracy, others for accuracy.
func Cascades(seed uint64) Problem {
	r := rand.New(rand.NewPCG(seed, 3))
	count := []int{1, 2, 4, 8, 16}[seed%5]
	cluster := &formats.Cluster{Format: formats.FormatCluster}
	profile := &formats.Profile{Format: formats.FormatProfile}
	speeds := []float64{1, 1.5 + 2*r.Float64()}[:1+r.IntN(2)]
	for k := range speeds {
		pool := formats.Pool{Device: fmt.Sprintf("kind%d", k), Count: count}
		cluster.Pools = append(cluster.Pools, pool)
		profile.Devices = append(profile.Devices, formats.ProfileDevice{Device: pool.Device})
	}
	const samples = 6000
	records := formats.Records{Samples: samples, PlanningSamples: samples}
	models := 2 + r.IntN(3)
	slowest, whole := 1+4*r.Float64(), 0.0 // ms of one sample, of the smallest model first
	var family []string
	for m := range models {
		name := fmt.Sprint("member", m)
		family = append(family, name)
		model := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all", WeightBytes: 1 << 20}}}
		fixed := 0.2 + 0.6*r.Float64()
		for k, pool := range cluster.Pools {
			for _, batch := range batches {
				us := document.Micros(math.Round(1e6 * slowest * speeds[k] * (fixed + (1-fixed)*float64(batch))))
				model.Measurements = append(model.Measurements, formats.Measurement{Device: pool.Device, Share: 1, Batch: batch, Blocks: []formats.Latency{{WallUS: us}}})
			}
		}
		profile.Models = append(profile.Models, model)
		records.Models = append(records.Models, answers(r, name, samples, 0.7+0.25*float64(m)/float64(models)))
		whole, slowest = whole+slowest, slowest*(1.5+2*r.Float64())
	}
	profile.Records = []formats.Records{records}
	last := &profile.Models[models-1].Measurements[0]
	alone := last.Blocks[0].WallUS.D()
	cascade := &formats.Cascade{Family: family, SLO: formats.CascadeSLO{Percentile: "p95", Latency: document.SLO{Duration: (time.Duration(3+10*r.Float64()) * alone).Round(time.Microsecond)}},
		QPS: formats.CascadeQPS{Ranges: 2 + r.IntN(4), Distribution: []string{"zipf", "uniform"}[r.IntN(2)]}}
	cascade.QPS.Max = math.Ceil((0.3 + 1.5*r.Float64()) * float64(count) / alone.Seconds())
	if seed%6 == 0 {
		cascade.SLO.Accuracy = 0.75 + 0.1*r.Float64()
	}
	return Problem{Name: fmt.Sprintf("cascade %d, devices %d of %d kinds", seed, count, len(speeds)), Values: map[string]any{},
		Inputs: planner.Inputs{Profile: profile, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: cascade}}}
}

// answers draws which samples a model is right about, and how certain it is: more often of those that it is right about.
func answers(r *rand.Rand, model string, samples int, accuracy float64) formats.ModelRecords {
	records := formats.ModelRecords{Model: model}
	correct := make([]byte, samples)
	for i := range correct {
		certainty := r.Float64()
		correct[i] = '0'
		if r.Float64() < accuracy {
			correct[i], certainty = '1', max(certainty, r.Float64())
		}
		records.Certainty = append(records.Certainty, math.Round(1e4*certainty)/1e4)
	}
	records.Correct = string(correct)
	return records
}

// Queues draws one or two language models in one to three classes, whose SLOs are of any figure, on 2 to 12 devices of two
// kinds. Seeds go round the objectives.
func Queues(seed uint64) Problem {
	r := rand.New(rand.NewPCG(seed, 4))
	instance := func(device string, base float64) formats.LLMInstance {
		return formats.LLMInstance{
			Device: device, TensorParallel: 1, Iteration: formats.Iteration{BaseNS: base, SequenceNS: 87000, ContextNS: 183, PromptNS: 64000, HingeTokens: 128, AttentionNS: 2},
			KVTokens: 100_000 + r.Int64N(200_000), KVSource: formats.KVMeasured, Loads: &formats.ModelLoads{ColdUS: document.Micros(4 * time.Second), WarmUS: document.Micros(time.Second)},
		}
	}
	profile := &formats.Profile{Format: formats.FormatProfile, LLMs: []formats.LLMProfile{
		{Model: "m7", WeightBytes: 14e9, KVBytesPerToken: 131072, ContextTokens: 8192, Instances: []formats.LLMInstance{instance("A100", 13e6), instance("A10", 26e6)}},
		{Model: "m13", WeightBytes: 26e9, KVBytesPerToken: 131072, ContextTokens: 8192, Instances: []formats.LLMInstance{instance("A100", 23e6)}},
	}}
	each := []int{1, 2, 3, 6}[seed%4]
	cluster := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "A100", Count: each, USDPerHour: 3}, {Device: "A10", Count: each, USDPerHour: 1}}}
	lengths := func(mean float64, largest int) *formats.Lengths {
		return &formats.Lengths{Distribution: formats.LengthsLognormal, Mean: mean, SD: mean * (0.3 + 0.5*r.Float64()), Max: largest}
	}
	seconds := func(s float64) document.SLO { return document.SLO{Duration: time.Duration(s * float64(time.Second))} }
	asked := &formats.LLM{Models: []string{"m7", "m13"}[:1+r.IntN(2)]}
	for i := range 1 + r.IntN(3) {
		c := formats.LLMClass{Class: fmt.Sprint("class", i), Prompt: lengths(200+600*r.Float64(), 3000), Output: lengths(40+160*r.Float64(), 800),
			RPS: (0.3 + 1.2*r.Float64()) * float64(each), Percentile: []string{"p99", "p95", "p90"}[r.IntN(3)]}
		switch r.IntN(4) {
		case 0:
			c.SLO = seconds(15 + 60*r.Float64())
		case 1:
			c.SLO, c.WaitingSLO = seconds(30+60*r.Float64()), seconds(5+10*r.Float64())
		case 2:
			c.SLO, c.Figure = seconds(2+6*r.Float64()), formats.FigureTTFT
		case 3:
			c.SLO, c.Figure, c.WaitingSLO = seconds(0.04+0.04*r.Float64()), formats.FigureTPOT, seconds(5+10*r.Float64())
		}
		asked.Classes = append(asked.Classes, c)
	}
	objective := []string{"gpus", "throughput", "goodput", "cost"}[seed/2%4]
	return Problem{Name: fmt.Sprintf("queue %d, %s, devices %d+%d", seed, objective, each, each), Values: map[string]any{"objective": objective},
		Inputs: planner.Inputs{Profile: profile, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: asked}}}
}
