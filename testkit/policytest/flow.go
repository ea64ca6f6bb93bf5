package policytest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// FlowStage is a module of an application of tests, with a model of its own.
type FlowStage struct {
	Name     string
	After    []string
	Branches []formats.Branch
	Infer    []time.Duration // of batches of 1, 2, …
	Workers  int
}

// FlowPlan is a plan of one application.
func FlowPlan(slo time.Duration, policy string, stages ...FlowStage) *formats.Plan {
	f := &formats.FlowPlan{Lambda: .1, WindowUS: document.Micros(5 * time.Second)}
	app := formats.FlowApplication{Served: formats.Served{Model: "app", SLOUS: document.Micros(slo), Percentile: "p99", Weight: 1, RPS: 100}}
	p := &formats.Plan{Format: formats.FormatPlan, Kind: formats.PlanFlow, Seed: 1, Algorithm: "given", Objective: formats.Objective{Name: "throughput", Value: 100},
		StoppedBy: "work", Options: document.NewValues(formats.PlanOptions(formats.PlanFlow)).PlanForm(), Policy: formats.PolicySpec{Name: policy}, Section: f}
	first := 0
	for _, s := range stages {
		st := formats.Stage{Blocks: [2]int{0, 1}, Device: "gpu", Share: 1, Replicas: s.Workers, GPUs: float64(s.Workers),
			Placement: []formats.Placement{{FirstDevice: first, PerDevice: 1, Replicas: s.Workers}}}
		for _, d := range s.Infer {
			st.InferUS = append(st.InferUS, document.Micros(d))
		}
		first += s.Workers
		last := s.Infer[len(s.Infer)-1]
		st.RPS = float64(s.Workers*len(s.Infer)) / last.Seconds()
		p.Deployment = append(p.Deployment, formats.Deployed{Model: s.Name, NumBlocks: 1,
			Pipelines: []formats.Pipeline{{Batch: len(s.Infer), RPS: st.RPS, LatencyUS: document.Micros(last), Stages: []formats.Stage{st}}}})
		f.Modules = append(f.Modules, formats.FlowModule{Model: s.Name, ColdStartUS: document.Micros(time.Second)})
		app.Modules = append(app.Modules, formats.Module{Name: s.Name, Model: s.Name, Predecessors: s.After, Branches: s.Branches})
	}
	f.Applications = []formats.FlowApplication{app}
	p.Pools = []formats.Pool{{Device: "gpu", Count: first}}
	return p
}

// TakeTurns has all modules of a plan of applications take turns on so many devices, each
// with an equal part of their time.
func TakeTurns(p *formats.Plan, devices int) *formats.Plan {
	p.Pools[0].Count, p.Pools[0].Sharing = devices, formats.SharingTime
	for i := range p.Deployment {
		l := &p.Deployment[i].Pipelines[0]
		s := &l.Stages[0]
		s.Replicas, s.GPUs, s.Placement = devices, float64(devices)/float64(len(p.Deployment)), []formats.Placement{{PerDevice: 1, Replicas: devices}}
		s.RPS = s.GPUs * float64(l.Batch) / l.LatencyUS.D().Seconds()
		l.RPS = s.RPS
	}
	return p
}

// DrawDropping draws parameters of a policy of applications.
func DrawDropping(rng *rand.Rand) map[string]float64 {
	return map[string]float64{"token": float64(rng.IntN(2)), "paths": .25 * float64(rng.IntN(2)),
		"prompt": float64(rng.IntN(2)), "learn": float64(rng.IntN(2)), "skew_us": float64(2000 * rng.IntN(2))}
}

// DrawFlow draws an application: up to most modules, each reading some of those
// before it, some with two ways on. At times there is a second one beside it, of
// some of the same modules. With scaling workers come and go.
func DrawFlow(rng *rand.Rand, most int, policy string, scaling bool) *formats.Plan {
	n := 1 + rng.IntN(most)
	stages := make([]FlowStage, n)
	longest := time.Duration(0)
	for i := range stages {
		s := &stages[i]
		s.Name, s.Workers = fmt.Sprintf("m%d", i), 1+rng.IntN(3)
		one, more := time.Duration(1+rng.IntN(8))*time.Millisecond, time.Duration(rng.IntN(3000))*time.Microsecond
		for b := range 1 + rng.IntN(5) {
			s.Infer = append(s.Infer, one+time.Duration(b)*more)
		}
		longest += s.Infer[len(s.Infer)-1]
		for k := range i {
			if k == i-1 && len(s.After) == 0 || rng.IntN(3) == 0 {
				s.After = append(s.After, stages[k].Name)
			}
		}
	}
	for i := range stages {
		if rng.IntN(3) > 0 {
			continue
		}
		ways := []formats.Branch{{Targets: []string{}, Probability: .4}, {Targets: []string{}, Probability: .6}}
		for k := i + 1; k < n; k++ {
			for _, a := range stages[k].After {
				if way := rng.IntN(3); a == stages[i].Name && way < 2 {
					ways[way].Targets = append(ways[way].Targets, stages[k].Name)
				}
			}
		}
		stages[i].Branches = ways
	}
	p := FlowPlan(longest+time.Duration(1+rng.IntN(60))*time.Millisecond, policy, stages...)
	f := formats.FlowOf(p)
	if rng.IntN(4) == 0 {
		other := formats.FlowApplication{Served: f.Applications[0].Served}
		other.Model = "other"
		for _, m := range f.Applications[0].Modules[:1+rng.IntN(n)] {
			m.Branches = nil
			other.Modules = append(other.Modules, m)
		}
		f.Applications = append(f.Applications, other)
	}
	if !scaling {
		return p
	}
	f.Scaling = &formats.FlowScaling{EveryUS: document.Micros(time.Second), WindowUS: document.Micros(2 * time.Second), HoldUS: document.Micros(3 * time.Second), MaxWorkers: 3 * n}
	for row := range 3 {
		r := formats.FlowRate{AboveRPS: 50 * float64(row)}
		for i := range stages {
			r.Replicas = append(r.Replicas, min(stages[i].Workers, 1+row))
		}
		f.Scaling.Table = append(f.Scaling.Table, r)
	}
	f.Scaling.Start = f.Scaling.Table[0].Replicas
	return p
}
