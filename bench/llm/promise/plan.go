package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// names are the models, of one size.
var names = []string{"tiny-a", "tiny-b"}

const device = "cpu-1"

// command runs the program.
func (b *bench) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, b.plan, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("plan %v: %w\n%s", args, err, said.Bytes())
	}
	return nil
}

// planned is a plan of one instance.
type planned struct{ *formats.Plan }

// profiled measures the server and makes the plan.
func (b *bench) profiled(ctx context.Context, url string, slo time.Duration) (*planned, error) {
	path := filepath.Join(b.dir, "profile.json")
	for _, n := range names {
		if err := b.command(ctx, "profile", "--llm", url, "--model", n, "--device", device, "--budget", b.budget.String(), "-o", path); err != nil {
			return nil, err
		}
	}
	profile, err := formats.ReadProfile(path)
	if err != nil {
		return nil, err
	}
	q := &formats.QueuePlan{Models: profile.LLMs}
	p := &formats.Plan{Kind: formats.PlanQueue, Section: q, Format: formats.FormatPlan, Algorithm: "search", StoppedBy: "work", Objective: formats.Objective{Name: "goodput", Value: 1},
		Policy: formats.PolicySpec{Name: "vqueue", Params: map[string]float64{"every_s": 0.25}}, Pools: []formats.Pool{{Device: device, Count: 1, MaxShares: 1}}, Inputs: []formats.Input{}}
	p.Tool.Version = "0"
	for i, n := range names {
		if len(profile.LLMs) != len(names) || profile.LLMs[i].Model != n || len(profile.LLMs[i].Instances) != 1 {
			return nil, fmt.Errorf("the profile has %+v", profile.LLMs)
		}
		if profile.LLMs[i].Instances[0].Loads == nil {
			return nil, fmt.Errorf("the profile of %s has no load times", n)
		}
		p.Deployment = append(p.Deployment, formats.Deployed{Model: n, NumBlocks: 1, Pipelines: []formats.Pipeline{}})
		q.Classes = append(q.Classes, formats.QueueClass{Served: formats.Served{Model: n, SLOUS: document.Micros(slo), Percentile: "p99", Weight: 1, RPS: 1}, Figure: formats.FigureE2E, OutputMean: 48, PromptMean: 24})
	}
	q.Instances = []formats.QueueInstance{{Device: device, TensorParallel: 1, Model: names[0], Models: names, Sequences: []int{1, 1}, TokenBudget: 512}}
	out := &planned{p}
	out.estimate()
	return out, nil
}

func (p *planned) queue() *formats.QueuePlan { return formats.QueueOf(p.Plan) }

// iteration returns the costs of the first model; both are of one size.
func (p *planned) iteration(model string) *formats.Iteration {
	for i, n := range names {
		if n == model {
			return &p.queue().Models[i].Instances[0].Iteration
		}
	}
	panic(model)
}

// change is how long it takes for one model to leave and another to come.
func (p *planned) change() time.Duration {
	l := p.queue().Models[0].Instances[0].Loads
	return l.ColdUS.D() + l.LeavesUS().D()
}

// took is how long a request takes, alone.
func (p *planned) took(r row) time.Duration {
	it := p.iteration(r.model)
	return it.PrefillTime(int32(r.prompt), 512) + time.Duration(r.output-1)*it.TokenTime(1, float64(r.prompt+r.output/2))
}

// estimate makes the policy's estimates of the costs: a request at a time.
func (p *planned) estimate() {
	q := p.queue()
	q.Estimates = nil
	for _, n := range names {
		it := p.iteration(n)
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

// fed is the plan with the times of a served run in the place of the profile's: what
// requests took against what the plan says, by model, and what loads and unloads took.
func (p *planned) fed(s *seen, rows []row) {
	for i, n := range names {
		took, said := 0.0, 0.0
		for _, x := range s.services {
			if r := rows[x.request]; r.model == n {
				took, said = took+float64(x.took), said+float64(p.took(r))
			}
		}
		m := &p.queue().Models[i].Instances[0]
		if said > 0 {
			by := took / said
			it := &m.Iteration
			it.BaseNS, it.SequenceNS, it.ContextNS, it.PromptNS, it.AttentionNS, it.CPUNS, it.CPUSequenceNS = it.BaseNS*by, it.SequenceNS*by, it.ContextNS*by, it.PromptNS*by, it.AttentionNS*by, it.CPUNS*by, it.CPUSequenceNS*by
		}
		if len(s.loads) > 0 {
			m.Loads = &formats.ModelLoads{ColdUS: mean(s.loads), WarmUS: mean(s.loads), UnloadUS: mean(s.unloads)}
		}
	}
	p.estimate()
}
