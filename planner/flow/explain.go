package flow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
)

// explainPlan returns lines of text: for every application its rate and the time of its longest path, for
// every module which part of its devices' capacity the applications need, and how modules take turns and
// replicas come and go.
func explain(p *formats.Plan) []string {
	f := formats.FlowOf(p)
	if f == nil {
		return nil
	}
	if f.Workflow() {
		return explainWorkflows(p, f)
	}

	// Applications, with the rate that each model has to carry.
	need, out := map[string]float64{}, []string(nil)
	for i := range f.Applications {
		a := &f.Applications[i]
		g, err := flow.Graph(a.Modules, fmt.Sprintf("flow.applications[%d]", i))
		if err != nil {
			continue
		}
		for k := range a.Modules {
			need[a.Modules[k].Model] += a.RPS * g.Nodes[k].Chance
		}
		path, took := longest(p, a, &g)
		out = append(out, fmt.Sprintf("application %s: %s rps; its longest path %s takes %v, with a batch to wait for and one's own in every module; the SLO less the margin is %v",
			a.Model, kind.Number(a.RPS), strings.Join(path, " > "), took, a.SLOUS.D()-a.MarginUS.D()))
	}

	// Load of the modules.
	var parts []string
	for i := range p.Deployment {
		d := &p.Deployment[i]
		text := d.Model + " " + kind.Percent(need[d.Model]/d.RPS())
		if i < len(f.Modules) && f.Modules[i].Accuracy > 0 {
			text += fmt.Sprintf(" (accuracy %.4g)", f.Modules[i].Accuracy)
		}
		parts = append(parts, text)
	}
	out = append(out, "load of the modules at the planned rates: "+strings.Join(parts, ", "))
	out = append(out, explainTurns(p)...)
	if f.Scaling != nil {
		out = append(out, explainScaling(f))
	}
	return out
}

// explainScaling returns a line about the table by which replicas come and go.
func explainScaling(f *formats.FlowPlan) string {
	s, rate, half, all := f.Scaling, 0., 0, 0
	for i := range f.Applications {
		rate += f.Applications[i].RPS
	}
	for _, n := range rowOf(s, rate/2).Replicas {
		half += n
	}
	for _, n := range s.Table[len(s.Table)-1].Replicas {
		all += n
	}
	cold := time.Duration(0)
	for i := range f.Modules {
		cold = max(cold, f.Modules[i].ColdStartUS.D())
	}
	return fmt.Sprintf("scaling: a table of %d rates, up to %d replicas, of which %d serve half the planned rate; every %v by the mean rate of the last %v, kept for %v; a further replica serves %v after the decision",
		len(s.Table), all, half, s.EveryUS.D(), s.WindowUS.D(), s.HoldUS.D(), cold)
}

// scalingRow returns the row of the table for a rate.
func rowOf(s *formats.FlowScaling, rate float64) formats.FlowRate {
	row := s.Table[0]
	for _, r := range s.Table {
		if r.AboveRPS < rate {
			row = r
		}
	}
	return row
}

// longestPath returns the module names and the time of the path of a planned application that takes
// longest, waits included.
func longest(p *formats.Plan, a *formats.FlowApplication, g *flow.App) (names []string, took time.Duration) {
	for _, behind := range g.Nodes[0].Paths {
		path := append([]int32{0}, behind...)
		sum, list := time.Duration(0), []string(nil)
		for _, n := range path {
			sum += slowest(p, a.Modules[n].Model) + besides(p, a.Modules[n].Model)
			list = append(list, a.Modules[n].Name)
		}
		if sum > took {
			names, took = list, sum
		}
	}
	return names, took
}

// maxBatchTime returns the longest time that a batch of a deployed model takes, on any of its devices.
func slowest(p *formats.Plan, name string) time.Duration {
	most := time.Duration(0)
	for i := range p.Deployment {
		if p.Deployment[i].Model != name {
			continue
		}
		for _, pl := range p.Deployment[i].Pipelines {
			for _, s := range pl.Stages {
				for _, took := range s.InferUS {
					most = max(most, took.D())
				}
			}
		}
	}
	return most
}

// explainTurns returns a line for every pool on whose devices modules take turns.
func explainTurns(p *formats.Plan) (out []string) {
	for k := range p.Pools {
		pool := &p.Pools[k]
		var names []string
		devices, most := 0, time.Duration(0)
		for s := range p.Stages() {
			if pool.Sharing == formats.SharingTime && s.Device == pool.Device && len(together(p, s.Deployed)) > 1 {
				names, devices, most = append(names, s.Deployed.Model), max(devices, s.Replicas), max(most, slowest(p, s.Deployed.Model))
			}
		}
		if len(names) > 1 {
			out = append(out, fmt.Sprintf("%s and %s take turns on %d x %s: a module may find its device busy with the longest run of any of them, %v",
				strings.Join(names[:len(names)-1], ", "), names[len(names)-1], devices, pool.Device, most))
		}
	}
	return out
}

// maxOtherRun returns the longest run of a batch of any model on the same devices: a task of the named
// model may have to wait for it.
func besides(p *formats.Plan, name string) time.Duration {
	most := time.Duration(0)
	for i := range p.Deployment {
		if p.Deployment[i].Model == name {
			for _, other := range together(p, &p.Deployment[i]) {
				most = max(most, slowest(p, other))
			}
		}
	}
	return most
}

// colocatedModels returns the names of the models that run on some device of d, itself included.
func together(p *formats.Plan, d *formats.Deployed) []string {
	out := []string{d.Model}
	for s := range p.Stages() {
		for k := range d.Pipelines {
			o := &d.Pipelines[k].Stages[0]
			if s.Device == o.Device && meet(s.Placement, o.Placement) && !slices.Contains(out, s.Deployed.Model) {
				out = append(out, s.Deployed.Model)
			}
		}
	}
	return out
}

// placementsOverlap returns whether some device is in both of two placements.
func meet(a, b []formats.Placement) bool {
	for _, x := range a {
		for _, y := range b {
			if x.First < y.First+y.Count() && y.First < x.First+x.Count() {
				return true
			}
		}
	}
	return false
}
