package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	flowscaling "inferplan/planner/flow/scaling"
)

// stage is a module of a pipeline as it is planned.
type stage struct {
	name, profile string
	after         []string
	batch         int
	ms            []float64 // [b-1]
	share         float64   // of the requests that come to it; 0 stands for all
	ways          []formats.Branch
}

// part is the share of the requests that come to a stage.
func (s *stage) part() float64 { return cmp.Or(s.share, 1) }

// pipeline is one of the four applications of PARD (§5.1): traffic monitoring,
// live video, gaming and a diamond.
type pipeline struct {
	name   string
	slo    time.Duration
	stages []stage
	known  bool // it is as many applications as the first module has ways
}

// pipelinesOf makes the four pipelines from measured profiles.
func pipelinesOf(from profiles) ([]*pipeline, error) {
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
			if s.ms = from.times(s.profile); s.ms == nil {
				return nil, fmt.Errorf("the data have no profile %s", s.profile)
			}
		}
		if err := p.plan(.9); err != nil {
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

// plan chooses the batches of least device time per request, with twice the
// execution along the longest way within a part of the SLO.
func (p *pipeline) plan(fill float64) error {
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

// cost is the device time of a request in milliseconds.
func (p *pipeline) cost() float64 {
	sum := 0.0
	for i := range p.stages {
		s := &p.stages[i]
		sum += s.part() * s.ms[s.batch-1] / float64(s.batch)
	}
	return sum
}

// capacity is the rate that so many workers carry.
func (p *pipeline) capacity(workers float64) float64 { return workers * 1e3 / p.cost() }

// rps returns the rate that a worker of a stage carries.
func (s *stage) rps() float64 { return 1e3 * float64(s.batch) / s.micros(s.batch).D().Seconds() / 1e3 }

// carries is the rate at the entry of which a worker of a stage carries its part.
func (s *stage) carries() float64 { return s.rps() / s.part() }

func (s *stage) micros(batch int) document.Micros {
	return document.Micros(math.Round(s.ms[batch-1] * 1e6))
}

// scaling is the rule of a case.
type scaling struct {
	headroom float64
	workers  int
	every    time.Duration
	window   time.Duration
	hold     time.Duration
	ahead    time.Duration
	sigmas   float64         // of the noise, above which a rise counts
	spread   float64         // of a rate, for planner/flow/scaling.Table; if 0, whole workers carry headroom times it
	cold     []time.Duration // by module
}

// want is how many workers every module gets at a rate: what carries headroom
// times it, less what is more than there are.
func (p *pipeline) want(rate float64, rule *scaling) []int {
	out, sum := make([]int, len(p.stages)), 0
	for i := range p.stages {
		out[i] = max(1, int(math.Ceil(rule.headroom*rate/p.stages[i].carries())))
		sum += out[i]
	}
	for ; sum > rule.workers; sum-- {
		most := 0
		for i := range out {
			if float64(out[i]-1)*p.stages[i].carries() > float64(out[most]-1)*p.stages[most].carries() {
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
			most = max(most, p.stages[i].carries())
		}
		sums := make([][]float64, len(p.stages)) // what the first worker carries, the first two, and so on
		for i := range p.stages {
			for m := 1.0; m*p.stages[i].carries() <= rule.headroom*top*(1+4*rule.spread)+most; m++ {
				sums[i] = append(sums[i], m*p.stages[i].carries())
			}
		}
		return flowscaling.Table(sums, rule.headroom, rule.spread, top)
	}
	rates := []float64{0}
	for i := range p.stages {
		step := p.stages[i].carries() / rule.headroom
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

// deploy makes the plan of a pipeline: with a rule, workers that come and go; else
// so many of every module.
func (p *pipeline) deploy(policy string, params map[string]float64, rule *scaling, start []int, top float64) *formats.Plan {
	most, table := slices.Clone(start), []formats.FlowRate(nil)
	if rule != nil {
		table = p.table(top, rule)
		for _, row := range table {
			for i, n := range row.Replicas {
				most[i] = max(most[i], n)
			}
		}
	}
	f := &formats.FlowPlan{Lambda: .1, WindowUS: document.Micros(5 * time.Second)}
	app := formats.FlowApplication{Served: formats.Served{Model: p.name, SLOUS: document.Micros(p.slo), Percentile: "p99", Weight: 1, RPS: p.capacity(64)}}
	out := &formats.Plan{Format: formats.FormatPlan, Kind: formats.PlanFlow, Seed: 1, Algorithm: "given", Objective: formats.Objective{Name: "throughput", Value: p.capacity(64)},
		StoppedBy: "work", Options: document.NewValues(formats.PlanOptions(formats.PlanFlow)).PlanForm(), Policy: formats.PolicySpec{Name: policy, Params: params}, Section: f}
	first := 0
	for i := range p.stages {
		s := &p.stages[i]
		st := formats.Stage{Blocks: [2]int{0, 1}, Device: "gpu", Share: 1, Replicas: most[i], GPUs: float64(most[i]),
			Placement: []formats.Placement{{FirstDevice: first, PerDevice: 1, Replicas: most[i]}}}
		for b := 1; b <= s.batch; b++ {
			st.InferUS = append(st.InferUS, s.micros(b))
		}
		first += most[i]
		st.RPS = s.rps() * float64(most[i])
		out.Deployment = append(out.Deployment, formats.Deployed{Model: p.name + "-" + s.name, NumBlocks: 1,
			Pipelines: []formats.Pipeline{{Batch: s.batch, RPS: st.RPS, LatencyUS: s.micros(s.batch), Stages: []formats.Stage{st}}}})
		m := formats.FlowModule{Model: p.name + "-" + s.name}
		if rule != nil {
			m.ColdStartUS = document.Micros(rule.cold[i])
		}
		f.Modules = append(f.Modules, m)
		app.Modules = append(app.Modules, formats.Module{Name: s.name, Model: m.Model, Predecessors: s.after, Branches: s.ways})
	}
	f.Applications = []formats.FlowApplication{app}
	if p.known {
		f.Applications = byWay(&app)
	}
	out.Pools = []formats.Pool{{Device: "gpu", Count: first}}
	if rule != nil {
		f.Scaling = &formats.FlowScaling{EveryUS: document.Micros(rule.every), WindowUS: document.Micros(rule.window), HoldUS: document.Micros(rule.hold), LookaheadUS: document.Micros(rule.ahead), RiseSigmas: rule.sigmas,
			MaxWorkers: rule.workers, Start: start, Table: table}
	}
	return out
}
