package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	flowscaling "inferplan/planner/flow/scaling"
	"inferplan/testkit/policytest"
)

// stage is a module of a pipeline as it is planned.
type stage struct {
	name, profile string
	after         []string
	batch         int
	ms            []float64 // [b-1]
}

// pipeline is one of the four applications of PARD (§5.1): traffic monitoring,
// live video, gaming and a diamond.
type pipeline struct {
	name   string
	slo    time.Duration
	stages []stage
}

// pipelinesOf makes the four pipelines from measured profiles.
func pipelinesOf(times profiles) ([]*pipeline, error) {
	list := []*pipeline{
		{name: "tm", slo: 400 * time.Millisecond, stages: chain("proteus/yolov5s", "nexus/vgg_face", "loki/eb3")},
		{name: "lv", slo: 500 * time.Millisecond, stages: chain("proteus/yolov5s", "nexus/vgg_face", "loki/eb1", "loki/eb0", "loki/eb5")},
		{name: "ga", slo: 600 * time.Millisecond, stages: chain("proteus/yolov5m", "nexus/vgg_s", "loki/eb0", "loki/eb1", "loki/eb3")},
		{name: "da", slo: 420 * time.Millisecond, stages: chain("proteus/yolov5s", "nexus/vgg_face", "loki/eb5", "loki/eb1", "loki/eb0")},
	}
	da := list[3].stages
	da[2].after, da[3].after = []string{da[0].name}, []string{da[1].name, da[2].name}
	for _, p := range list {
		for i := range p.stages {
			s := &p.stages[i]
			if s.ms = times[s.profile]; s.ms == nil {
				return nil, fmt.Errorf("the data have no profile %s", s.profile)
			}
		}
		if err := p.chooseBatches(.9); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func chain(profiles ...string) []stage {
	var out []stage
	for i, p := range profiles {
		s := stage{name: fmt.Sprintf("m%d", i+1), profile: p}
		if i > 0 {
			s.after = []string{out[i-1].name}
		}
		out = append(out, s)
	}
	return out
}

// batches are those that a plan chooses from.
var batches = []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32}

// chooseBatches chooses the batches of least device time per request, with twice the
// execution along the longest way within a part of the SLO.
func (p *pipeline) chooseBatches(fill float64) error {
	found := p.cheapestBatches(fill * millis(p.slo))
	if found == nil {
		return fmt.Errorf("pipeline %s: no batches fit %v", p.name, p.slo)
	}
	for i, b := range found {
		p.stages[i].batch = b
	}
	return nil
}

// cheapestBatches are those of least device time per request, with twice the execution along
// the longest way within a limit in milliseconds. If there are none, it returns nil.
func (p *pipeline) cheapestBatches(limit float64) []int {
	best := math.Inf(1)
	choice, found := make([]int, len(p.stages)), []int(nil)
	var search func(i int, cost float64)
	search = func(i int, cost float64) {
		if cost >= best {
			return
		}
		if i == len(p.stages) {
			best, found = cost, slices.Clone(choice)
			return
		}
		for _, b := range p.stages[i].batches() {
			choice[i] = b
			if 2*p.way(choice[:i+1]) <= limit {
				search(i+1, cost+p.stages[i].perRequest(b))
			}
		}
	}
	search(0, 0)
	return found
}

// way is the longest way through the first stages with the chosen batches.
func (p *pipeline) way(choice []int) float64 {
	most, at := 0.0, map[string]float64{}
	for i, b := range choice {
		s := &p.stages[i]
		before := 0.0
		for _, a := range s.after {
			before = max(before, at[a])
		}
		at[s.name] = before + s.ms[b-1]
		most = max(most, at[s.name])
	}
	return most
}

// longestPath returns the longest time along the pipeline with the planned batches, in milliseconds.
func (p *pipeline) longestPath() float64 {
	var choice []int
	for i := range p.stages {
		choice = append(choice, p.stages[i].batch)
	}
	return p.way(choice)
}

// cost is the device time of a request in milliseconds.
func (p *pipeline) cost() float64 {
	sum := 0.0
	for i := range p.stages {
		s := &p.stages[i]
		sum += s.perRequest(s.batch)
	}
	return sum
}

// capacity is the rate that so many workers carry.
func (p *pipeline) capacity(workers float64) float64 { return workers * 1e3 / p.cost() }

// rps returns the rate that a worker of a stage carries.
func (s *stage) rps() float64 { return 1e3 * float64(s.batch) / s.micros(s.batch).D().Seconds() / 1e3 }

func (s *stage) micros(batch int) document.Micros {
	return document.Micros(math.Round(s.ms[batch-1] * 1e6))
}

// scaling is the rule by which workers come and go.
type scaling struct {
	formats.FlowScaling                 // but for the workers at the start and the table
	headroom            float64         // what workers carry over the rate
	spread              float64         // of a rate, for planner/flow/scaling.Table; if 0, whole workers carry headroom times it
	cold                []time.Duration // by module
}

// fixedScaling returns the rule that is the same for all policies: every 5 s by the mean of the last 5 s, held for 30 s, at most 64 workers. The cold start
// is 5 s, or, where it is late, rises to 9 s along the pipeline.
func (p *pipeline) fixedScaling(late bool) *scaling {
	const every, hold = document.Micros(5 * time.Second), document.Micros(30 * time.Second)
	rule := &scaling{headroom: 1.1, FlowScaling: formats.FlowScaling{EveryUS: every, WindowUS: every, HoldUS: hold, MaxWorkers: 64}}
	for k := range p.stages {
		cold := 5.
		if late {
			cold += math.Round(4 * float64(k) / float64(len(p.stages)-1))
		}
		rule.cold = append(rule.cold, time.Duration(cold)*time.Second)
	}
	return rule
}

// want says how many workers every module gets at a rate: what carries headroom
// times it, less what is more than there are.
func (p *pipeline) want(rate float64, rule *scaling) []int {
	out, sum := make([]int, len(p.stages)), 0
	for i := range p.stages {
		out[i] = max(1, int(math.Ceil(rule.headroom*rate/p.stages[i].rps())))
		sum += out[i]
	}
	for ; sum > rule.MaxWorkers; sum-- {
		most := 0
		for i := range out {
			if float64(out[i]-1)*p.stages[i].rps() > float64(out[most]-1)*p.stages[most].rps() {
				most = i
			}
		}
		out[most]--
	}
	return out
}

// table lists the rates at which the number of workers changes, up to a rate.
func (p *pipeline) table(top float64, rule *scaling) []formats.FlowRate {
	if rule.spread > 0 {
		most := 0.0
		for i := range p.stages {
			most = max(most, p.stages[i].rps())
		}
		sums := make([][]float64, len(p.stages)) // what the first worker carries, the first two, and so on
		for i := range p.stages {
			for m := 1.0; m*p.stages[i].rps() <= rule.headroom*top*(1+4*rule.spread)+most; m++ {
				sums[i] = append(sums[i], m*p.stages[i].rps())
			}
		}
		return flowscaling.Table(sums, rule.headroom, rule.spread, top)
	}
	rates := []float64{0}
	for i := range p.stages {
		step := p.stages[i].rps() / rule.headroom
		for m := 1; float64(m)*step < top; m++ {
			rates = append(rates, float64(m)*step)
		}
	}
	slices.Sort(rates)
	rates = slices.Compact(rates)
	var out []formats.FlowRate
	for i, r := range rates {
		next := top
		if i+1 < len(rates) {
			next = rates[i+1]
		}
		w := p.want((r+next)/2, rule)
		if len(out) == 0 || !slices.Equal(out[len(out)-1].Replicas, w) {
			out = append(out, formats.FlowRate{AboveRPS: r, Replicas: w})
		}
	}
	return out
}

// deploy returns the plan of a pipeline: with a rule, workers that come and go, from start on and up to a rate; else start of every module.
func (p *pipeline) deploy(policy formats.PolicySpec, rule *scaling, start []int, largestRate float64) *formats.Plan {
	workers, table := slices.Clone(start), []formats.FlowRate(nil)
	if rule != nil {
		table = p.table(largestRate, rule)
		for _, row := range table {
			for i, n := range row.Replicas {
				workers[i] = max(workers[i], n)
			}
		}
	}
	var stages []policytest.FlowStage
	for i := range p.stages {
		s := &p.stages[i]
		stage := policytest.FlowStage{Name: s.name, After: s.after, Workers: workers[i]}
		for batch := 1; batch <= s.batch; batch++ {
			stage.Infer = append(stage.Infer, s.micros(batch).D())
		}
		stages = append(stages, stage)
	}
	plan := policytest.FlowPlan(p.slo, policy.Name, stages...)
	plan.Policy, plan.Objective.Value = policy, p.capacity(64)
	flow := formats.FlowOf(plan)
	flow.Applications[0].RPS = p.capacity(64)
	for i := range flow.Modules {
		if flow.Modules[i].ColdStartUS = 0; rule != nil {
			flow.Modules[i].ColdStartUS = document.Micros(rule.cold[i])
		}
	}
	if rule != nil {
		demand := rule.FlowScaling
		demand.Start, demand.Table = start, table
		flow.Scaling = &demand
	}
	return plan
}
