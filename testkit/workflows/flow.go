package workflows

import (
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Profile is the services as a profile of a kind of devices.
func Profile(device string) *formats.Profile {
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: device, Method: "assumed"}}}
	for _, m := range models() {
		pm := formats.ProfileModel{Model: m.name, Blocks: []formats.Block{{Name: "all", WeightBytes: int64(m.gigabytes * 1e9)}},
			Loads: []formats.DeviceLoad{{Device: device, ModelLoads: formats.ModelLoads{WarmUS: document.Micros(seconds(loadFixed + m.gigabytes/loadRate))}}},
			Move:  &formats.OutputMove{NearUS: document.Micros(m.near), FarUS: document.Micros(m.far)}}
		for n := range m.most {
			took := formats.Latency{WallUS: document.Micros(seconds(m.first + m.slope*float64(n)))}
			pm.Measurements = append(pm.Measurements, formats.Measurement{Device: device, Share: 1, Batch: n + 1, WholeModel: &took, Blocks: []formats.Latency{took}})
		}
		p.Models = append(p.Models, pm)
	}
	return p
}

// Workload is the applications that have a rate, in a workload document.
func Workload(slo time.Duration, rps [3]float64) *formats.Workload {
	var list formats.Applications
	for m, segments := range [][]formats.Segment{gillSegments(), cardSegments(), debateSegments()} {
		if rps[m] > 0 {
			a := formats.Application{Name: strings.ToLower(Names[m]), SLO: document.SLO{Duration: slo}, RPS: rps[m], Weight: rps[m], Segments: segments}
			if int32(m) == GILL {
				a.Parameters = map[string]string{"images": "int"}
			}
			list = append(list, a)
		}
	}
	return &formats.Workload{Format: formats.FormatWorkload, Section: list, Arrivals: &formats.Arrivals{Process: "poisson"}}
}

func gillSegments() []formats.Segment {
	return []formats.Segment{
		{Name: "answer", Modules: []formats.Module{
			{Name: "see", Model: "vit-l-14", Items: "parameters.images", Chances: []float64{.3, .6, .1}},
			{Name: "reply", Model: "opt-6.7b", Predecessors: []string{"see"}, Outputs: map[string]string{"drawings": "int"}},
		}, NextBranches: []formats.Branch{{Targets: []string{"draw"}, Condition: "reply.drawings > 0", Probability: .9}, {Targets: []string{}, Probability: .1}}},
		{Name: "draw", Modules: []formats.Module{
			{Name: "picture", Model: "stable-diffusion-1.5", Predecessors: []string{"reply"}, Items: "reply.drawings", Chances: []float64{0, .85 / .9, .05 / .9}},
		}},
	}
}

func cardSegments() []formats.Segment {
	thought := map[string]string{"unsure": "bool", "card": "string"}
	fact := formats.Module{Name: "fact", Predecessors: []string{"thought"}, Route: "thought.card"}
	names, shares := models()[Card:], NewApps(0).zipf
	for c, below := range shares {
		p := below
		if c > 0 {
			p -= shares[c-1]
		}
		fact.Routes = append(fact.Routes, formats.Route{Model: names[c].name, Probability: p})
	}
	work := float64(quarter) / 1e6
	next := func(p float64) []formats.Branch {
		return []formats.Branch{{Targets: []string{"look"}, Condition: "thought.unsure", Probability: p}, {Targets: []string{"answer"}, Probability: 1 - p}}
	}
	return []formats.Segment{
		{Name: "think", Modules: []formats.Module{{Name: "thought", Model: "llama-2-7b", Work: work, Outputs: thought}}, NextBranches: next(.75)},
		{Name: "look", MaxVisits: 2, Modules: []formats.Module{
			fact,
			{Name: "thought", Model: "llama-2-7b", Work: work, Predecessors: []string{"fact", "thought"}, Outputs: thought},
		}, NextBranches: next(.2)},
		{Name: "answer", Modules: []formats.Module{{Name: "reply", Model: "llama-2-7b", Predecessors: []string{"thought"}}}},
	}
}

func debateSegments() []formats.Segment {
	return []formats.Segment{{Name: "round", MaxVisits: 3,
		Modules:      []formats.Module{{Name: "agent", Model: "llama-2-7b", Predecessors: []string{"agent"}, Items: "3", Outputs: map[string]string{"agrees": "bool"}}},
		NextBranches: []formats.Branch{{Targets: []string{"round"}, Condition: "!agent.agrees.all(a, a)", Probability: .45, LaterProbabilities: []float64{.4}}, {Targets: []string{}, Probability: .55, LaterProbabilities: []float64{.6}}}}}
}
