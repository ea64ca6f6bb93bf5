package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// What plan init writes beside a profile of a busy machine solves as it is: means are up to forty times the medians,
// models were measured on some of the devices and shares only, and requests cost time beside their runs.
func TestStartersOfNoisyProfilesSolve(t *testing.T) {
	draws := 16
	if testing.Short() {
		draws = 4
	}
	kinds := map[string]int{}
	const unlikeServers = 67 // draws language models whose servers take one device and two
	for i := range draws {
		seed := i
		if i == draws-1 {
			seed = unlikeServers
		}
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		profile := drawNoisyProfile(rng)
		if seed%4 == 3 {
			profile = drawLanguageModels(rng)
		}
		if err := profile.Validate(); err != nil {
			t.Fatal(err)
		}
		in := kind.Documents{Profile: profile}
		var machine planner.Machine // every second one that is drawn has a device that the profile may have measured
		if seed%2 == 1 {
			machine.GPUs = []planner.LocalGPUs{{Kind: "L4", Count: 1}}
		}
		dir := t.TempDir()
		for _, starter := range starterDocuments(profile, machine) {
			path := filepath.Join(dir, starter.name)
			err := os.WriteFile(path, []byte(starter.text), 0o600)
			switch starter.name {
			case "cluster.yaml":
				in.Cluster, err = formats.ReadCluster(path)
			case "workload.yaml":
				in.Workload, err = formats.ReadWorkload(path)
			}
			if err != nil {
				t.Fatalf("profile %d: %v\n%s", seed, err, starter.text)
			}
		}
		result, err := planner.Solve(t.Context(), in, planner.Options{SkipNearest: true}, highs.Solver{}, nil)
		if err != nil {
			workload, _ := os.ReadFile(filepath.Join(dir, "workload.yaml"))
			t.Errorf("profile %d: %v\n%s", seed, err, workload)
			continue
		}
		kinds[result.Plan.Kind]++
	}
	if kinds[formats.PlanGear] == 0 || kinds[formats.PlanPool] == 0 || kinds[formats.PlanQueue] == 0 {
		t.Errorf("plans by kind: %v", kinds)
	}
}

// Language models whose servers take other numbers of devices of one kind are in one workload.
func TestStartersHaveServersOfAllSizes(t *testing.T) {
	profile := drawLanguageModels(rand.New(rand.NewPCG(1, 1)))
	one := profile.LLMs[0].Instances[0]
	one.TensorParallel = 1
	two := one
	two.TensorParallel = 2
	profile.LLMs = []formats.LLMProfile{{Model: "a", Instances: []formats.LLMInstance{one}}, {Model: "b", Instances: []formats.LLMInstance{two}}}
	if text := textStarter(profile.LLMs); !strings.Contains(text, `models: ["a", "b"]`) || strings.Contains(text, "Left out") {
		t.Error(text)
	}
}

// drawLanguageModels draws a profile of servers of language models, with little memory and with much.
func drawLanguageModels(rng *rand.Rand) *formats.Profile {
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "L4"}, {Device: "T4"}}, Models: []formats.ProfileModel{}}
	for i := range 1 + rng.IntN(2) {
		p.LLMs = append(p.LLMs, formats.LLMProfile{Model: string(rune('a' + i)), KVBytesPerToken: 131072, Instances: []formats.LLMInstance{{
			Device: p.Devices[rng.IntN(2)].Device, TensorParallel: 1 + rng.IntN(2), AllReduce: formats.NoAllReduce, KVSource: formats.KVMeasured,
			KVTokens: 1000 << rng.IntN(8), Sequences: rng.IntN(3) * 8, TokenBudget: rng.IntN(3) * 1024,
			Iteration: formats.Iteration{
				BaseNS: 1e6 * (2 + 60*rng.Float64()), SequenceNS: 5e5 * rng.Float64(), ContextNS: 500 * rng.Float64(), PromptNS: 3e5 * rng.Float64(),
				HingeTokens: 256 * rng.Float64(), AttentionNS: 5 * rng.Float64(),
			},
		}}})
	}
	return p
}

// drawNoisyProfile draws a profile of a busy machine, half of the time with records of its models.
func drawNoisyProfile(rng *rand.Rand) *formats.Profile {
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "L4"}, {Device: "T4"}}}
	if rng.IntN(2) == 0 {
		p.FrontEnd = &formats.FrontEnd{Cores: 1 + rng.IntN(4)}
	}
	const samples, planningSamples = 900, 600
	records := formats.Records{Samples: samples, PlanningSamples: planningSamples}
	batches, shares := 1+rng.IntN(3), [][]int{{1}, {1, 2}}[rng.IntN(2)]
	for i := range 2 + rng.IntN(2) {
		m := formats.ProfileModel{
			Model: string(rune('a' + i)), Blocks: []formats.Block{{Name: "first"}, {Name: "last"}},
			RequestUS: document.Micros(1e6 * rng.Float64()), RequestCPUUS: document.Micros(1e6 * 2 * rng.Float64()), DispatchUS: document.Micros(1e6 * rng.Float64()),
		}
		median := 1e6 * (.1 + 20*rng.Float64()*float64(i+1))
		devices := [][]string{{"L4"}, {"T4"}, {"L4", "T4"}}[rng.IntN(3)]
		isWhole := rng.IntN(4) > 0
		for _, device := range devices {
			for k := range len(shares) * batches {
				v, batch := shares[k/batches], 1<<(2*(k%batches))
				wall := median * float64(v*(1+batch)) / 2 * (.7 + .6*rng.Float64())
				x := formats.Measurement{Device: device, Share: v, Batch: batch, Blocks: []formats.Latency{{WallUS: document.Micros(wall / 2)}, {WallUS: document.Micros(wall / 2)}}}
				if isWhole {
					mean := wall * (1 + 40*rng.Float64())
					x.WholeModel = &formats.Latency{WallUS: document.Micros(wall), MeanUS: document.Micros(mean), IdleUS: document.Micros(mean * (1 + rng.Float64())), DriftUS: document.Micros(mean * rng.Float64())}
				}
				m.Measurements = append(m.Measurements, x)
			}
		}
		p.Models = append(p.Models, m)

		// A larger model is right more often.
		r := formats.ModelRecords{Model: m.Model}
		for n := range samples {
			certainty := float64((n*(7+2*i))%100) / 100
			r.Certainty = append(r.Certainty, certainty)
			r.Correct += string("01"[map[bool]int{true: 1}[certainty > .3-.1*float64(i)]])
		}
		records.Models = append(records.Models, r)
	}
	if rng.IntN(2) == 0 {
		p.Records = []formats.Records{records}
	}
	return p
}
