package main

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// names are the models, of one size.
var names = []string{"tiny-a", "tiny-b"}

const device = "cpu-1"

// newPlan returns a plan of queues on one device, with its policy.
func newPlan(q *formats.QueuePlan, params map[string]float64) *formats.Plan {
	p := &formats.Plan{Kind: formats.PlanQueue, Section: q, Format: formats.FormatPlan, Algorithm: "search", StoppedBy: "work", Objective: formats.Objective{Name: "goodput", Value: 1},
		Policy: formats.PolicySpec{Name: "vqueue", Params: params}, Pools: []formats.Pool{{Device: device, Count: 1, MaxShares: 1}}, Inputs: []formats.Input{}}
	p.Tool.Version = "0"
	return p
}

// addClass adds a class of requests for a model to a plan.
func addClass(p *formats.Plan, class formats.QueueClass, model, name string, slo time.Duration, rps float64) {
	q := formats.QueueOf(p)
	class.Served = formats.Served{Model: model, Class: name, SLOUS: document.Micros(slo), Percentile: "p99", Weight: 1, RPS: rps}
	q.Classes = append(q.Classes, class)
	p.Deployment = append(p.Deployment, formats.Deployed{Model: model, Class: name, NumBlocks: 1, Pipelines: []formats.Pipeline{}})
}

// planned is a plan of one instance.
type planned struct{ *formats.Plan }

// profiled measures the server and makes the plan.
func (b *bench) profiled(ctx context.Context) (*planned, error) {
	for _, n := range names {
		if err := program.Run(ctx, "profile", "--llm", b.url, "--model", n, "--device", device, "--budget", "15s", "-o", b.path("profile.json")); err != nil {
			return nil, err
		}
	}
	profile, err := formats.ReadProfile(b.path("profile.json"))
	if err != nil {
		return nil, err
	}
	p := &planned{newPlan(&formats.QueuePlan{
		Models:    profile.LLMs,
		Instances: []formats.QueueInstance{{Device: device, TensorParallel: 1, Model: names[0], Models: names, Sequences: []int{1, 1}, TokenBudget: 512}},
	}, map[string]float64{"every_s": 0.25})}
	if len(profile.LLMs) != len(names) {
		return nil, fmt.Errorf("the profile has %d models, expected %d", len(profile.LLMs), len(names))
	}
	for i, n := range names {
		if m := &profile.LLMs[i]; m.Model != n || len(m.Instances) != 1 || m.Instances[0].Loads == nil {
			return nil, fmt.Errorf("the profile has %+v, expected one instance of %s with load times", m, n)
		}
		addClass(p.Plan, formats.QueueClass{Figure: formats.FigureE2E, OutputMean: 48, PromptMean: 24}, n, "", time.Minute, 1)
	}
	p.estimate()
	return p, nil
}

// instance returns what the profile says of a model, the i-th.
func (p *planned) instance(i int) *formats.LLMInstance { return &p.queue().Models[i].Instances[0] }

func (p *planned) queue() *formats.QueuePlan { return formats.QueueOf(p.Plan) }

// change says how long it takes for one model to leave and another to come; both are of one size.
func (p *planned) change() time.Duration {
	l := p.instance(0).Loads
	return l.ColdUS.D() + l.LeavesUS().D()
}

// took says how long a request takes, alone.
func (p *planned) took(r row) time.Duration {
	i := 0
	if r.model == names[1] {
		i = 1
	}
	it := &p.instance(i).Iteration
	return it.PrefillTime(int32(r.prompt), 512) + time.Duration(r.output-1)*it.TokenTime(1, float64(r.prompt+r.output/2))
}

// work says how long the requests of a trace take.
func (p *planned) work(rows []row) (sum time.Duration) {
	for _, r := range rows {
		sum += p.took(r)
	}
	return sum
}

// gap is a time in which a burst is over for sure.
func (p *planned) gap() time.Duration {
	return 2*(p.work(bursts(1, 0))+4*p.change()) + 2*time.Second
}

// estimate makes the policy's estimates of the costs: a request at a time.
func (p *planned) estimate() {
	q := p.queue()
	q.Estimates = nil
	for i, n := range names {
		it := &p.instance(i).Iteration
		token, prompt := float64(it.TokenTime(1, 48)), float64(it.PrefillTime(24, 512))
		q.Estimates = append(q.Estimates, formats.QueueEstimate{Model: n, Device: device, PromptNS: prompt / 24, OutputNS: token, PrefillNS: prompt, DecodeNS: token, Batch: 1, PromptMean: 24, OutputMean: 48, OutputSD: 18, PromptSD: 9})
	}
}

func mean(list []time.Duration) (sum document.Micros) {
	for _, d := range list {
		sum += document.Micros(d)
	}
	return sum / document.Micros(max(1, len(list)))
}

// adopt puts the times of a served run in the place of the profile's: what requests took against what the plan says, by model,
// and what loads and unloads took.
func (p *planned) adopt(s *seen, rows []row) {
	for i, n := range names {
		served, planned := 0.0, 0.0
		for _, x := range s.services {
			if r := rows[x.request]; r.model == n {
				served, planned = served+float64(x.took), planned+float64(p.took(r))
			}
		}
		m := p.instance(i)
		if planned > 0 {
			it := &m.Iteration
			for _, cost := range []*float64{&it.BaseNS, &it.SequenceNS, &it.ContextNS, &it.PromptNS, &it.AttentionNS, &it.CPUNS, &it.CPUSequenceNS} {
				*cost *= served / planned
			}
		}
		if len(s.loads) > 0 {
			m.Loads = &formats.ModelLoads{ColdUS: mean(s.loads), WarmUS: mean(s.loads), UnloadUS: mean(s.unloads)}
		}
	}
	p.estimate()
}
