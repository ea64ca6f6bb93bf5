package readings

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/drop"
	"inferplan/policy/flow"
)

// parts are the modules' parts of the SLO, by how long each takes along the longest way (as Clipper's
// per-model SLOs and Nexus §6.2).
type parts struct {
	t     *policy.Tables
	apps  []flow.Application
	runs  []time.Duration // by module: of a planned batch
	of    []time.Duration // by application and module
	worst []peaks         // by module
}

// peaks are the longest times in a module, second by second.
type peaks struct {
	last [5]time.Duration
	now  time.Duration
}

func newParts(t *policy.Tables) *parts {
	p := &parts{t: t, apps: flow.GraphTablesOf(t).Apps, runs: make([]time.Duration, len(t.Services)), worst: make([]peaks, len(t.Services))}
	for m := range t.Services {
		s := &t.Services[m]
		for pl := s.FirstPipeline; pl < s.FirstPipeline+s.NumPipelines; pl++ {
			pipe := &t.Pipelines[pl]
			if len(t.DevicesOf(pipe.FirstStage)) > 0 {
				p.runs[m] = max(p.runs[m], t.Stages[pipe.FirstStage].Infer[pipe.Batch-1])
			}
		}
	}
	p.of = make([]time.Duration, len(p.apps)*len(t.Services))
	for a := range p.apps {
		p.share(a, p.runs)
	}
	return p
}

// at is where the part of a module for a request stands.
func (p *parts) at(r *flow.Request, module int32) int32 { return p.cell(int(r.Model), module) }

func (p *parts) cell(app int, module int32) int32 {
	return int32(app)*int32(len(p.t.Services)) + module
}

// longest is the longest way through an application, where a module takes so long as by says.
func longest(app *flow.Application, by []time.Duration) time.Duration {
	most := time.Duration(0)
	for _, path := range app.Nodes[0].Paths {
		sum := by[app.Nodes[0].Service]
		for _, n := range path {
			sum += by[app.Nodes[n].Service]
		}
		most = max(most, sum)
	}
	return most
}

// share gives every module its part of an application's SLO.
func (p *parts) share(a int, by []time.Duration) {
	app, slo := &p.apps[a], p.t.Models[a].SLO
	total := longest(app, by)
	for i := range app.Nodes {
		service := app.Nodes[i].Service
		p.of[p.cell(a, service)] = time.Duration(float64(slo) * float64(by[service]) / float64(total))
	}
}

// began notes how long a task will have been in a module.
func (p *parts) began(module int32, took time.Duration) {
	p.worst[module].now = max(p.worst[module].now, took)
}

// second gives parts of the SLO by the longest times seen (WCL).
func (p *parts) second(now time.Duration, runs []time.Duration) {
	by := make([]time.Duration, len(p.worst))
	for i := range p.worst {
		w := &p.worst[i]
		w.last[int64(now/time.Second)%int64(len(w.last))], w.now = w.now, 0
		by[i] = runs[i]
		for _, x := range w.last {
			by[i] = max(by[i], x)
		}
	}
	for a := range p.apps {
		p.share(a, by)
	}
}

// window is Nexus: the first window of a batch in which all tasks end in time is kept, and what stands before it
// is dropped (§6.3).
func window() drop.Variant {
	var list []drop.WaitingTask // the window
	return drop.Variant{ArrivalOrder: true, HighestFirst: &low,
		PassesTest: func(c drop.EntryCandidate) bool { return c.End <= c.Request.Deadline },
		FormBatch: func(f drop.FormingBatch) {
			list = list[:0]
			for first := true; first || len(list) > 0; first = false {
				for len(list) < f.PlannedSize() && f.Len() > 0 {
					list = append(list, f.PopOldest())
				}
				if len(list) == 0 || inTime(f, list) {
					break
				}
				if list[0].IsWanted {
					f.DropTask(&list[0])
				}
				list = list[:copy(list, list[1:])]
			}
			for i := range list {
				if list[i].IsWanted {
					f.AddTask(&list[i])
				}
			}
			for f.Len() > 0 && f.HasRoom() {
				if next := f.PopOldest(); next.IsWanted {
					f.AddTask(&next)
				}
			}
		}}
}

// inTime returns whether all wanted tasks of a window end in time if they run together.
func inTime(f drop.FormingBatch, list []drop.WaitingTask) bool {
	end := f.EndOfSize(len(list))
	for i := range list {
		if w := &list[i]; w.IsWanted && end > w.Request.Deadline {
			return false
		}
	}
	return true
}
