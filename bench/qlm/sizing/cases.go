package sizing

import (
	"strconv"
	"time"

	"inferplan/bench/qlm/fleet"
	"inferplan/bench/qlm/instance"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/planner/queue/deploy"
	"inferplan/sim/llm"
)

// Case is a workload at a rate.
type Case struct {
	Name       string
	Popularity []float64 // models with even numbers are Mistral-7B, the others Vicuna-13B
	Odd        int       // added to the numbers of models: 1 where the only one is Vicuna-13B
	RPS        float64
}

// Cases are the five of several models, and one model at a high rate.
var Cases = []Case{
	{Name: "6 models, 2 rps", Popularity: six, RPS: 2},
	{Name: "6 models, 6.12 rps", Popularity: six, RPS: 6.12},
	{Name: "6 models, 15.3 rps", Popularity: six, RPS: 15.3},
	{Name: "12 models, 6.12 rps", Popularity: tail(12), RPS: 6.12},
	{Name: "24 models, 6.12 rps", Popularity: tail(24), RPS: 6.12},
	{Name: "1 model (W_B), 30 rps", Popularity: []float64{1}, Odd: 1, RPS: 30},
}

// six is the popularity of W_A's models.
var six = []float64{0.5, 0.25, 0.08, 0.07, 0.06, 0.04}

// tail is two busy models and others alike.
func tail(models int) []float64 {
	out := []float64{0.5, 0.25}
	for len(out) < models {
		out = append(out, 0.25/float64(models-2))
	}
	return out
}

// Rows of the trace that are run, and seeds that are pooled.
const (
	rows  = 6000
	Seeds = 5
)

// Share is the part of requests that must be in time.
const Share = 0.99

// most is the number of GPUs that a search may use.
const most = 80

// weights is the size of every model, so that exactly three wait in a host's memory.
const weights = 26e9

// models are the two that are hosted, with the times of their loads by 23.6 GB/s
// from the host and 3.62 GB/s from storage.
var models = [2]formats.LLMProfile{
	{Model: "mistral", WeightBytes: weights, KVBytesPerToken: instance.Mistral7B.TokenBytes, Instances: []formats.LLMInstance{on(instance.Mistral7B, 14.5e9)}},
	{Model: "vicuna", WeightBytes: weights, KVBytesPerToken: instance.Vicuna13B.TokenBytes, Instances: []formats.LLMInstance{on(instance.Vicuna13B, 26e9)}},
}

func on(m llm.Model, bytes float64) formats.LLMInstance {
	return formats.LLMInstance{
		Device: "A100", TensorParallel: 1, Iteration: m.Iteration, KVTokens: m.KVTokens, KVSource: formats.KVMeasured, BlockTokens: 16, TokenBudget: 2048, SwapGBps: 23.6,
		Loads: &formats.ModelLoads{WarmUS: document.Micros(time.Duration(bytes / 23.6)), ColdUS: document.Micros(time.Duration(bytes / 3.62))},
	}
}

// perPosition is the time of a re-plan per position that it looks at, searchWork
// bounds it.
const (
	perPosition = time.Microsecond
	searchWork  = 1000
)

// Problem is a case for the planner's search.
func (c *Case) Problem(d *fleet.Data) (*deploy.Problem, error) {
	p := &deploy.Problem{
		Pools: []formats.Pool{{Device: "A100", Count: most, MaxShares: 1, PerNode: 1}}, Kinds: []deploy.Kind{{Device: "A100", TP: 1, MaxInstances: most, Price: 1}},
		Caps: []int{8, 12, 16, 24, 32, 48, 64}, WarmModels: 3, Seed: 1, Runs: Seeds, Effort: 1, SearchWork: searchWork,
		SearchTime: func(worked int64) time.Duration { return time.Duration(worked) * perPosition },
	}
	var sample []llm.Request
	for i := 6000; i < len(d.Conversations) && len(sample) < 1200; i += 11 {
		r := d.Conversations[i]
		r.ArrivedAt = 0
		sample = append(sample, r)
	}
	for i, slo := range fleet.Classes {
		p.Classes = append(p.Classes, deploy.Class{Name: slo.String(), Figure: formats.FigureE2E, SLO: slo, Percentile: "p99", RequiredShare: Share, Sample: sample, JudgeGroup: min(i, 1)})
	}
	for m, popular := range c.Popularity {
		profile := models[(m+c.Odd)%2]
		profile.Model = "model-" + strconv.Itoa(m)
		p.Models = append(p.Models, deploy.Model{Name: profile.Model, Profile: &profile, ByKind: []*formats.LLMInstance{&profile.Instances[0]}})
		for class, share := range fleet.Shares() {
			p.Items = append(p.Items, deploy.Item{Model: m, Class: class, RPS: c.RPS * popular * share, Weight: 1})
		}
	}
	runs := make([][]arrivals.Request, Seeds)
	for seed := range runs {
		var err error
		if runs[seed], err = d.Draw(c.Popularity, rows, c.RPS, uint64(seed+1)); err != nil {
			return nil, err
		}
	}
	p.Replay = func(run int) []arrivals.Request { return runs[run] }
	return p, nil
}
