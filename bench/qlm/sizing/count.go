package sizing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"inferplan/bench/qlm/fleet"
	"inferplan/bench/qlm/instance"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/planner/queue/deploy"
	"inferplan/policy"
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

// Rows of the trace that are run, seeds that are pooled, the share of requests that must be in time, and the number of GPUs
// that a search may use.
const (
	rows  = 6000
	Seeds = 5
	Share = 0.99
	most  = 80
)

// models are the two that are hosted, with the bytes of their weights, which load at 23.6 GB/s from the host and 3.62 GB/s from
// storage.
var models = [2]struct {
	llm.Model
	bytes float64
}{{instance.Mistral7B, 14.5e9}, {instance.Vicuna13B, 26e9}}

// problem returns a case for the planner's search.
func (c *Case) problem(d *fleet.Data) (*deploy.Problem, error) {
	p := newProblem(most, Seeds)
	p.Caps, p.WarmModels = []int{8, 12, 16, 24, 32, 48, 64}, 3
	sample := fleet.Sample(d.Conversations, 6000, 11)
	for i, slo := range fleet.Classes {
		p.Classes = append(p.Classes, deploy.Class{Name: slo.String(), Figure: formats.FigureE2E, SLO: slo, Percentile: "p99", RequiredShare: Share, Sample: sample, JudgeGroup: min(i, 1)})
	}
	for n, popular := range c.Popularity {
		m := &models[(n+c.Odd)%2]
		addModel(p, "model-"+strconv.Itoa(n), m.Model, &formats.ModelLoads{WarmUS: document.Micros(time.Duration(m.bytes / 23.6)), ColdUS: document.Micros(time.Duration(m.bytes / 3.62))})
		for class, share := range fleet.Shares {
			p.Items = append(p.Items, deploy.Item{Model: n, Class: class, RPS: c.RPS * popular * share, Weight: 1})
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

// Competitor is a policy with the fleets that it may choose.
type Competitor struct {
	Name       string
	Structures deploy.SearchOptions
	Policy     formats.PolicySpec
	Make       func(t *policy.Tables) (policy.Policy, error)
	OneModel   bool // of interest for one model alone
}

// Competitors are the planner, and what it is held against. All choose their best
// number of sequences at once for each model of a pool.
var Competitors = []Competitor{
	{Name: "planned", Structures: deploy.SearchOptions{SeparateClasses: true}, Policy: formats.PolicySpec{Name: "vqueue", Params: map[string]float64{"by_deadline": 1, "group_scale": 1, "one_open": 1, "follow": 1}}},
	{Name: "partition, EDF", Structures: alone, Policy: simple, Make: byDeadline.new},
	{Name: "partition, FCFS", Structures: alone, Policy: simple, Make: byArrival.new},
	{Name: "partition, gateway-like", Structures: alone, Policy: simple, Make: inBands.new},
	{Name: "split by class, EDF", Structures: deploy.SearchOptions{SeparateClasses: true, OnlySeparateClasses: true}, Policy: simple, Make: byDeadline.new, OneModel: true},
}

// Of partitions: each model has replicas of its own. What orders their requests is
// made by the competitor; the plan names a policy that any tables have.
var (
	alone  = deploy.SearchOptions{SeparateModels: true}
	simple = formats.PolicySpec{Name: "balance"}
)

// Sized is the fleet that a competitor needs.
type Sized struct {
	GPUs     int        // 0 stands for more than there are
	Fleet    string     // in words
	Attained [2]float64 // of interactive and of batch requests
}

// Count finds the fewest GPUs of a competitor.
func Count(ctx context.Context, d *fleet.Data, c *Case, k *Competitor) (*Sized, error) {
	p, err := c.problem(d)
	if err != nil {
		return nil, err
	}
	p.Policy, p.NewPolicy = k.Policy, k.Make
	if len(c.Popularity) == 1 && p.Policy.Name == "vqueue" {
		p.Policy.Params = map[string]float64{"by_deadline": 1, "group_scale": 1, "follow": 1}
	}
	f, err := deploy.NewSearch(p).CheapestLayout(ctx, k.Structures, 0, nil)
	if errors.Is(err, deploy.ErrTooFewDevices) {
		return &Sized{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", c.Name, k.Name, err)
	}
	gpus := 0
	for i := range f.Layout.Pools {
		gpus += f.Layout.Pools[i].InstanceCount()
	}
	return &Sized{GPUs: gpus, Fleet: words(p, f.Layout), Attained: [2]float64{attained(p, f, 0), attained(p, f, 1)}}, nil
}

// attained is the share in time of the classes of a figure.
func attained(p *deploy.Problem, f *deploy.LayoutResult, figure int) float64 {
	o := p.OutcomesOf(&f.Score, figure)
	return o.Attainment()
}
